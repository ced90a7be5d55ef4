# SPDX-License-Identifier: Apache-2.0
"""Write the table of presets into docs/constraint.md and docs/zh/constraint.md, below their last heading."""

from pathlib import Path

from lerobot_craft.presets import presets_table

DOCS = Path(__file__).parents[1] / "docs"
MARKS = {DOCS / "constraint.md": "a test keeps it so.\n\n", DOCS / "zh" / "constraint.md": "出处）。\n\n"}


def main() -> None:
    """Replace whatever follows the mark."""
    for page, mark in MARKS.items():
        head = page.read_text(encoding="utf-8").split(mark)[0]
        page.write_text(head + mark + presets_table(), encoding="utf-8")


if __name__ == "__main__":
    main()
