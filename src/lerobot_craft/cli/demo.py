# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft demo`: forgetting and its absence on Meta-World; parses, hands over, returns the exit code."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.cli._arguments import normalize
from lerobot_craft.cli._parser import comma_separated, make_parser
from lerobot_craft.demo import DemoSettings

EXAMPLES = """\
examples:
  lerobot-craft demo
  lerobot-craft demo --old_tasks=reach,door-open --new_task=window-open --output_dir=outputs/windows
  lerobot-craft demo --seed=1 --episodes=50 --output_dir=outputs/demo-1
"""


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `demo`.

    Returns:
        The exit code.
    """
    given = parser().parse_args(normalize(arguments))
    settings = DemoSettings(**vars(given))
    # Everything the demo needs is on this machine, and asking the Hub about it would only cost time.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # The policies are small and run on a CPU; a copy of a process that has met a GPU cannot use it any more.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from lerobot_craft.demo._run import run

    return run(settings)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand."""
    defaults = DemoSettings()
    made = make_parser(
        "demo",
        "Teach a policy a new task with and without forgetting, and show both. Finished stages are reused.",
        EXAMPLES,
    )
    old = ",".join(defaults.old_tasks)
    made.add_argument("--old_tasks", metavar="A,B", type=comma_separated, help=f"tasks the teacher knows ({old})")
    made.add_argument(
        "--new_task", metavar="NAME", help=f"task it is taught ({defaults.new_task}); any of Meta-World's 50"
    )
    for name, text in (
        ("demos", "demonstrations per task"),
        ("episodes", "evaluation episodes per task and method"),
        ("teacher_steps", "training steps of the teacher"),
        ("steps", "training steps of each fine-tuning"),
        ("seed", "of demonstrations, training and evaluation"),
    ):
        made.add_argument(f"--{name}", metavar="N", type=int, help=f"{text} ({vars(defaults)[name]})")
    made.add_argument("--output_dir", metavar="DIR", type=Path, help=f"where all of it goes ({defaults.output_dir})")
    return made
