# SPDX-License-Identifier: Apache-2.0
"""What is finished in a demo's folder, with its times and outcomes, and the results made from it; runs no stage."""

import json
from pathlib import Path
from typing import Any

from lerobot_craft.demo._methods import METHODS
from lerobot_craft.demo._settings import DemoSettings
from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation import TaskSuccess, wilson_interval

RECORD = "stages.json"


class Record:
    """The finished stages of one folder; each is written down the moment it is done.

    Args:
        settings: What the stages are made with.

    Raises:
        UsageError: If the folder's stages were made with other settings.
    """

    def __init__(self, settings: DemoSettings) -> None:
        self._path = settings.output_dir / RECORD
        self._stages: dict[str, dict[str, Any]] = {}
        self._settings = settings.fixed()
        if self._path.is_file():
            saved = json.loads(self._path.read_text(encoding="utf-8"))
            check_same(settings.output_dir, "holds a demo with other settings:", saved["settings"], self._settings)
            self._stages = saved["stages"]

    def __contains__(self, stage: str) -> bool:
        return stage in self._stages

    def __getitem__(self, stage: str) -> dict[str, Any]:
        return self._stages[stage]

    def get(self, stage: str) -> dict[str, Any] | None:
        """Return what is known of a stage, None where it is not finished."""
        return self._stages.get(stage)

    def finish(self, stage: str, seconds: float, **facts: Any) -> None:  # noqa: ANN401 (JSON values)
        """Write down that a stage is done, how long it took and what later stages need of it."""
        self._stages[stage] = {"seconds": round(seconds, 2), **facts}
        write_json(self._path, {"settings": self._settings, "stages": self._stages})

    def outcomes(self, method: str) -> list[TaskSuccess]:
        """Return how a method's episodes ended."""
        return [TaskSuccess(task, tuple(ends)) for task, ends in self[f"evaluate {method}"]["outcomes"].items()]

    @property
    def seconds(self) -> float:
        """Time that all stages took together."""
        return float(sum(stage["seconds"] for stage in self._stages.values()))


def check_same(output_dir: Path, what: str, saved: dict[str, Any], asked: dict[str, Any]) -> None:
    """Refuse to go on in a folder that was begun with other settings.

    Args:
        output_dir: The folder.
        what: What it is found to hold, as the message says it.
        saved: The settings it was begun with.
        asked: Those given now.

    Raises:
        UsageError: If they differ, with every difference named.
    """
    differences = [
        f"  - `--{name}`: the folder has {saved.get(name)}, got {value}"
        for name, value in asked.items()
        if saved.get(name) != value
    ]
    if differences:
        raise UsageError(
            f"`--output_dir={output_dir}` {what}\n" + "\n".join(differences) + "\n"
            f"Pass another `--output_dir`, or remove that one: rm -r {output_dir}"
        )


def make_results(settings: DemoSettings, record: Record) -> dict[str, Any]:
    """Return what goes into `results.json`: equal for equal settings, but for the times."""
    return {
        "old_tasks": list(settings.old_tasks),
        "new_task": settings.new_task,
        "episodes_per_task": settings.episodes,
        "seed": settings.seed,
        "demos_per_task": settings.demos,
        "teacher_steps": settings.teacher_steps,
        "steps": settings.steps,
        "longest_episode": record["data"]["longest_episode"],
        "methods": {name: method_results(settings, record.outcomes(name)) for name in ("teacher", *METHODS)},
        "wall_s": round(record.seconds, 1),
    }


def method_results(settings: DemoSettings, outcomes: list[TaskSuccess]) -> dict[str, Any]:
    """Return a method's success on the old tasks and the new one, with intervals."""
    by_task = {success.task: success for success in outcomes}
    old = [by_task[task] for task in settings.old_tasks]
    new = by_task[settings.new_task]
    return {
        "old_success": round(sum(success.rate for success in old) / len(old), 4),
        "old_interval": _interval(*old),
        "new_success": round(new.rate, 4),
        "new_interval": _interval(new),
        "old_by_task": {success.task: round(success.rate, 4) for success in old},
    }


def _interval(*successes: TaskSuccess) -> list[float]:
    ends = [end for success in successes for end in success.outcomes]
    return [round(bound, 4) for bound in wilson_interval(sum(ends), len(ends))]


def table(results: dict[str, Any]) -> str:
    """Return the results as text: one row per method."""
    titles = {"teacher": "teacher, before", **{name: method.title for name, method in METHODS.items()}}
    width = max(map(len, titles.values()))
    tasks = list(results["old_tasks"])
    heads = "  ".join(tasks)
    new_width = max(len(results["new_task"]), 18)
    lines = [
        f"{'':<{width}}  {'old tasks':<18}  {'new task':<{new_width}}  each old task",
        f"{'success':<{width}}  {'mean    95 %':<18}  {results['new_task']:<{new_width}}  {heads}",
    ]
    for name, title in titles.items():
        row = results["methods"][name]
        each = "  ".join(f"{row['old_by_task'][task]:<{len(task)}.2f}" for task in tasks)
        old = _cell(row["old_success"], row["old_interval"])
        new = _cell(row["new_success"], row["new_interval"])
        lines.append(f"{title:<{width}}  {old:<18}  {new:<{new_width}}  {each}".rstrip())
    return "\n".join(lines)


def _cell(rate: float, interval: list[float]) -> str:
    return f"{rate:.2f}    {interval[0]:.2f}-{interval[1]:.2f}"


def write_json(path: Path, value: object) -> None:
    """Write a JSON file that is either the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
