# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft report`: one page from runs and comparisons; parses, hands over, returns the exit code."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.cli._arguments import normalize

EXAMPLES = """\
examples:
  lerobot-craft report outputs/demo
  lerobot-craft report outputs/run drift.json --output=run.html --lang=zh
  lerobot-craft report outputs/run --card --output=card.md
"""


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `report`.

    Returns:
        The exit code.
    """
    # Paths may stand before and after flags.
    given = parser().parse_intermixed_args(normalize(arguments))
    from lerobot_craft.report import write_card, write_report

    output = given.output or Path("report.md" if given.card else "report.html")
    write = write_card if given.card else write_report
    write(given.paths, output, given.lang)
    sys.stdout.write(f"{output}\n")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand."""
    made = argparse.ArgumentParser(
        prog="lerobot-craft report",
        description="Write one self-contained HTML page, in English and Chinese, from training runs, demos, "
        "comparisons and drift measurements, in any number and mix.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        type=Path,
        help="folder of a run, demo or comparison, or JSON file of `lerobot-craft drift`",
    )
    made.add_argument("--output", metavar="FILE", type=Path, help="the page (report.html; with --card, report.md)")
    made.add_argument("--lang", metavar="LANG", default="en", help="language shown first: en or zh (en)")
    made.add_argument("--card", action="store_true", help="write a Markdown section for a model card instead")
    return made
