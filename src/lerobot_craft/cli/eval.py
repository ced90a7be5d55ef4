# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft eval`: success of checkpoints on Meta-World tasks; parses, hands over, returns the exit code."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.cli._arguments import normalize
from lerobot_craft.errors import UsageError

EXAMPLES = """\
example:
  lerobot-craft eval --policy.path=outputs/demo/teacher,outputs/demo/runs/craft/checkpoints/last/pretrained_model \\
      --tasks=hammer,push,drawer-open --episodes=50
"""


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `eval`.

    Returns:
        The exit code.
    """
    try:
        given = parser().parse_args(normalize(arguments))
    except SystemExit as stop:
        return 0 if stop.code in (0, None) else 2
    flags = {"checkpoints": "--policy.path", "tasks": "--tasks"}
    if missing := [flag for name, flag in flags.items() if name not in given]:
        raise UsageError(f"`{'` and `'.join(missing)}` must be given: see `lerobot-craft eval --help`.")
    from lerobot_craft.evaluation._settings import EvaluationSettings

    settings = EvaluationSettings(**vars(given))
    from lerobot_craft.evaluation._evaluate import evaluate

    sys.stdout.write(evaluate(settings))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand."""
    made = argparse.ArgumentParser(
        prog="lerobot-craft eval",
        description="Try checkpoints that read Meta-World states, as the demo's do, on any of its tasks, from the same "
        "starts; success with 95 % intervals.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        # What is not given is left out, so that each default stands in `EvaluationSettings` alone.
        argument_default=argparse.SUPPRESS,
    )
    made.add_argument("--policy.path", dest="checkpoints", metavar="P,P", type=_paths, help="checkpoint folders")
    made.add_argument("--tasks", metavar="A,B", type=_words, help="Meta-World tasks, such as push,drawer-open")
    made.add_argument("--episodes", metavar="N", type=int, help="episodes per task and checkpoint (20)")
    made.add_argument("--max_steps", metavar="N", type=int, help="steps after which an episode has failed (200)")
    made.add_argument("--seed", metavar="N", type=int, help="of the starts, the same for every checkpoint (0)")
    made.add_argument("--output", metavar="JSON", type=Path, help="a file for every episode's outcome")
    return made


def _words(word: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in word.strip("[]").split(",") if part.strip())


def _paths(word: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in _words(word))
