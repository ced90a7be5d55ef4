# SPDX-License-Identifier: Apache-2.0
"""`run`: the demo from its settings to its table; the order of the stages and what each shows, and nothing else."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lerobot_craft.demo._console import Console
from lerobot_craft.demo._methods import METHODS, NUM_ANCHORS, Folders
from lerobot_craft.demo._record import Record, make_results, method_results, table, write_json
from lerobot_craft.demo._settings import DemoSettings
from lerobot_craft.evaluation import check_tasks
from lerobot_craft.report import write_report

if TYPE_CHECKING:
    from lerobot_craft.demo._stages import Stages

INTERRUPTED = 130


def run(settings: DemoSettings) -> int:
    """Show forgetting, and its absence; finished stages of an earlier run are used again.

    Args:
        settings: What to show.

    Returns:
        0 when the table is there, 130 when it was interrupted; the same command goes on then.

    Raises:
        CraftError: With a message for the user, whatever it is that cannot work.
    """
    console = Console()
    check_tasks("old_tasks", settings.old_tasks)
    check_tasks("new_task", [settings.new_task])
    record = Record(settings)
    console.line(f"Teach {settings.new_task} to a policy that knows {', '.join(settings.old_tasks)}.")
    try:
        _stages(settings, record, console)
    except KeyboardInterrupt:
        console.line("Interrupted. The same command goes on after the last finished stage.")
        return INTERRUPTED
    results = make_results(settings, record)
    folders = Folders(settings.output_dir)
    write_json(folders.results, results)
    console.line(f"\n{table(results)}\n")
    console.line(f"{results['wall_s']:.0f} s in all, {settings.episodes} episodes per task. {folders.results}")
    write_report([folders.root], folders.report)
    console.line(f"All of it on one page: {folders.report}")
    return 0


def _stages(settings: DemoSettings, record: Record, console: Console) -> None:
    began = time.monotonic()
    console.passing("      loading LeRobot")
    import torch

    from lerobot_craft.demo._stages import Stages

    # One thread: faster for so small a policy, and the same numbers however many cores there are.
    torch.set_num_threads(1)
    record.finish("loading", time.monotonic() - began)
    stages = Stages(settings, record, console)
    planned = _plan(settings, stages)
    for number, (name, work, shows) in enumerate(planned, start=1):
        head = f"[{number:>2}/{len(planned)}]"
        before = record.get(name)
        console.passing(f"{head} {name}")
        work()
        took = "reused" if record[name] is before else f"{record[name]['seconds']:.1f} s"
        method = name.removeprefix("evaluate ")
        success = f": {_success(settings, record, method)}" if method != name else ""
        console.line(f"{head} {name:<{max(len(stage) for stage, _, _ in planned)}} {took:>8}  {shows}{success}")


def _plan(settings: DemoSettings, stages: "Stages") -> list[tuple[str, Callable[[], None], str]]:
    """Return the stages in their order: name, work, and what it shows."""
    plan: list[tuple[str, Callable[[], None], str]] = [
        ("data", stages.data, f"{settings.demos} demonstrations a task by noisy scripted experts, as LeRobotDatasets"),
        ("teacher", stages.teacher, f"LeRobot's ACT learns the {len(settings.old_tasks)} old tasks from them"),
        ("evaluate teacher", partial(stages.evaluate, "teacher"), "what it knows"),
        (
            "anchors",
            stages.anchors,
            f"{NUM_ANCHORS} old frames with the teacher's hidden states: all that CRaFT looks back to",
        ),
    ]
    for name, method in METHODS.items():
        plan.append((name, partial(stages.fine_tune, name), method.does))
        plan.append((f"evaluate {name}", partial(stages.evaluate, name), method.shows))
    return plan


def _success(settings: DemoSettings, record: Record, name: str) -> str:
    row = method_results(settings, record.outcomes(name))
    return f"old {row['old_success']:.2f}, new {row['new_success']:.2f}"
