# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft compare`: methods side by side on Meta-World; parses, hands over, returns the exit code."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.cli._arguments import normalize
from lerobot_craft.cli._parser import comma_separated, make_parser
from lerobot_craft.comparison import METHODS, CompareSettings
from lerobot_craft.comparison._settings import GROUPS
from lerobot_craft.comparison._study import read_study

EXAMPLES = """\
examples:
  lerobot-craft compare
  lerobot-craft compare --methods=plain,craft,replay --old_tasks=reach,door-open --new_tasks=window-open --tune=false
  lerobot-craft compare --methods=plain,craft --old_tasks=hammer --new_tasks=push,faucet-close --output_dir=outputs/mine
  lerobot-craft compare --study=benchmarks/studies/ablation.toml --problems=splits --output_dir=outputs/ablation
"""


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `compare`.

    Returns:
        The exit code.
    """
    words = normalize(arguments)
    given = vars(parser().parse_args(words))
    if "study" in given:
        given["study"] = read_study(given["study"])
        given.setdefault("methods", tuple(given["study"]))
    settings = CompareSettings(**given)
    # Everything a comparison needs is on this machine, and asking the Hub about it would only cost time.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # The policies are small and run on a CPU; a copy of a process that has met a GPU cannot use it any more.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from lerobot_craft.comparison._run import run

    return run(settings, words)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand."""
    defaults = CompareSettings()
    made = make_parser(
        "compare",
        "Fine-tune the same teachers on the same data by several methods, each at its best strength, and "
        "compare what they kept and what they learnt. Finished work is used again.",
        EXAMPLES,
    )
    made.add_argument("--methods", metavar="A,B", type=comma_separated, help=f"of {','.join(METHODS)} (all)")
    made.add_argument(
        "--problems", metavar="A,B", type=comma_separated, help=f"of {','.join(GROUPS)} ({','.join(defaults.problems)})"
    )
    made.add_argument(
        "--old_tasks", metavar="A,B", type=comma_separated, help="Meta-World tasks the teacher knows, instead"
    )
    made.add_argument(
        "--new_tasks", metavar="A,B", type=comma_separated, help="the tasks it is taught, one after the other"
    )
    made.add_argument("--seeds", metavar="N,N", type=_numbers, help="one run of everything for each (0,1,2)")
    for name, text in (
        ("episodes", "evaluation episodes per task"),
        ("demos", "demonstrations per task"),
        ("teacher_steps", "training steps of a teacher"),
        ("steps", "training steps of a fine-tuning"),
        ("num_anchors", "anchors per fine-tuning"),
    ):
        made.add_argument(f"--{name}", metavar="N", type=int, help=f"{text} ({vars(defaults)[name]})")
    made.add_argument(
        "--tune", metavar="BOOL", type=_truth, help="choose each method's strength on a problem of its own first (true)"
    )
    made.add_argument("--workers", metavar="N", type=int, help="processes at a time (one a core)")
    made.add_argument("--study", metavar="TOML", type=Path, help="methods of one's own: settings with names")
    made.add_argument("--output_dir", metavar="DIR", type=Path, help=f"where all of it goes ({defaults.output_dir})")
    return made


def _numbers(word: str) -> tuple[int, ...]:
    return tuple(int(part) for part in comma_separated(word))


def _truth(word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"got {word}, expected true or false")
    return word.lower() == "true"
