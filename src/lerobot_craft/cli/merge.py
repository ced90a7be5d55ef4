# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft merge`: policies between a teacher and its student; parses, hands over, returns the exit code."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.cli._arguments import normalize
from lerobot_craft.cli._parser import comma_separated, make_parser
from lerobot_craft.errors import UsageError

EXAMPLES = """\
examples:
  lerobot-craft merge --teacher.path=TEACHER --policy.path=CHECKPOINT --alpha=0.1,0.3,0.5 --output_dir=MERGED
  lerobot-craft merge --teacher.path=TEACHER --policy.path=CHECKPOINT --alpha=0.5 --modules='model.encoder.*' \\
    --output_dir=MERGED --dataset.repo_id=OLD_DATA
"""


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `merge`.

    Returns:
        The exit code.
    """
    given = parser().parse_args(normalize(arguments))
    flags = {
        "teacher_path": "--teacher.path",
        "policy_path": "--policy.path",
        "alphas": "--alpha",
        "output_dir": "--output_dir",
    }
    if missing := [flag for name, flag in flags.items() if name not in given]:
        raise UsageError(f"`{'` and `'.join(missing)}` must be given: see `lerobot-craft merge --help`.")
    from lerobot_craft.merging._settings import MergeSettings

    settings = MergeSettings(**vars(given))
    from lerobot_craft.merging._run import run

    sys.stdout.write(run(settings))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand."""
    made = make_parser(
        "merge",
        "Write checkpoints with the weights (1 - alpha) teacher + alpha student, and try them where asked.",
        EXAMPLES,
    )
    made.add_argument("--teacher.path", dest="teacher_path", metavar="A", help="the policy before fine-tuning")
    made.add_argument("--policy.path", dest="policy_path", metavar="B", help="the policy after it")
    made.add_argument("--alpha", dest="alphas", metavar="X,Y", type=_numbers, help="shares of the student, 0 to 1")
    made.add_argument("--output_dir", metavar="DIR", type=Path, help="gets alpha_X/pretrained_model for each")
    made.add_argument("--modules", metavar="PATTERN", help="interpolate only tensors of these names; others: student's")
    made.add_argument("--processors", metavar="WHOSE", help="config and processors of: teacher, policy (teacher)")
    _add_drift(made)
    _add_rollouts(made)
    made.add_argument("--seed", metavar="N", type=int, help="of frames, noise and rollouts (0)")
    return made


def _add_drift(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("drift of each from the teacher")
    group.add_argument("--dataset.repo_id", dest="repo_id", metavar="D", help="a dataset of what the teacher knew")
    group.add_argument("--dataset.root", dest="root", metavar="DIR", type=Path, help="its folder, where it is local")
    group.add_argument(
        "--dataset.episodes", dest="episodes", metavar="[0,1]", type=_episodes, help="only these episodes"
    )
    group.add_argument("--dataset.revision", dest="revision", metavar="R", help="branch, tag or commit on the Hub")
    group.add_argument("--num_frames", metavar="N", type=int, help="frames, over tasks and episodes (200)")
    group.add_argument("--batch_size", metavar="N", type=int, help="frames per forward (16)")
    group.add_argument(
        "--device", "--policy.device", dest="device", metavar="NAME", help="cpu, cuda, ... (the teacher's)"
    )


def _add_rollouts(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("success of each, for policies of Meta-World states")
    group.add_argument(
        "--tasks", metavar="A,B", type=comma_separated, help="Meta-World tasks, such as push,drawer-open"
    )
    group.add_argument("--episodes", dest="rollouts", metavar="N", type=int, help="episodes per task (20)")
    group.add_argument("--max_steps", metavar="N", type=int, help="steps after which an episode has failed (200)")


def _numbers(word: str) -> tuple[float, ...]:
    return tuple(float(part) for part in comma_separated(word))


def _episodes(word: str) -> tuple[int, ...]:
    return tuple(json.loads(word if word.startswith("[") else f"[{word}]"))
