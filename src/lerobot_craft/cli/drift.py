# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft drift`: how far checkpoints moved from their teacher; parses, hands over, returns the exit code."""

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
  lerobot-craft drift --teacher.path=TEACHER --policy.path=CHECKPOINT --dataset.repo_id=OLD_DATA
  lerobot-craft drift --teacher.path=TEACHER --policy.path=outputs/run --dataset.repo_id=OLD_DATA --max_drift=0.2
  lerobot-craft drift --teacher.path=TEACHER --policy.path=A,B --dataset.repo_id=OLD_DATA --output=drift.json
"""


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `drift`.

    Returns:
        The exit code: 1 where no checkpoint is within `--max_drift`.
    """
    given = parser().parse_args(normalize(arguments))
    flags = {"teacher_path": "--teacher.path", "policy_paths": "--policy.path", "repo_id": "--dataset.repo_id"}
    if missing := [flag for name, flag in flags.items() if name not in given]:
        raise UsageError(f"`{'` and `'.join(missing)}` must be given: see `lerobot-craft drift --help`.")
    from lerobot_craft.drift._record import write_record
    from lerobot_craft.drift._run import measure
    from lerobot_craft.drift._settings import DriftSettings
    from lerobot_craft.drift._table import as_text

    settings = DriftSettings(**vars(given))
    measured = measure(settings)
    # The table first: a file that cannot be written must not cost the measurement.
    sys.stdout.write(as_text(measured))
    if settings.output is not None:
        write_record(measured, settings.output)
    return int(measured.max_drift is not None and measured.keep is None)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand."""
    made = make_parser(
        "drift",
        "Say how far checkpoints have moved from their teacher, on recorded frames: actions, layers, the "
        "answer to the instruction, statistics apart from weights. Needs no simulator.",
        EXAMPLES,
    )
    made.add_argument("--teacher.path", dest="teacher_path", metavar="A", help="the policy before fine-tuning")
    made.add_argument(
        "--policy.path",
        dest="policy_paths",
        metavar="B,C",
        type=comma_separated,
        help="checkpoints, or the folder of a run",
    )
    made.add_argument("--dataset.repo_id", dest="repo_id", metavar="D", help="a dataset of what the teacher knew")
    made.add_argument("--dataset.root", dest="root", metavar="DIR", type=Path, help="its folder, where it is local")
    made.add_argument(
        "--dataset.episodes", dest="episodes", metavar="[0,1]", type=_episodes, help="only these episodes"
    )
    made.add_argument("--dataset.revision", dest="revision", metavar="R", help="branch, tag or commit on the Hub")
    made.add_argument(
        "--max_drift", metavar="X", type=float, help="most drift that will do; exit code 1 where none is within"
    )
    made.add_argument("--num_frames", metavar="N", type=int, help="frames, over tasks and episodes (200)")
    made.add_argument("--batch_size", metavar="N", type=int, help="frames per forward (16)")
    made.add_argument("--seed", metavar="N", type=int, help="of frames, noise and intervals (0)")
    made.add_argument(
        "--device", "--policy.device", dest="device", metavar="NAME", help="cpu, cuda, ... (the teacher's)"
    )
    made.add_argument("--output", metavar="JSON", type=Path, help="a file for all numbers")
    return made


def _episodes(word: str) -> tuple[int, ...]:
    return tuple(json.loads(word if word.startswith("[") else f"[{word}]"))
