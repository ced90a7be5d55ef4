# SPDX-License-Identifier: Apache-2.0
"""Write the table of presets into docs/constraint.md, below its last heading."""

from pathlib import Path

from lerobot_craft.presets import presets_table

GUIDE = Path(__file__).parents[1] / "docs" / "constraint.md"
MARK = "a test keeps it so.\n\n"


def main() -> None:
    """Replace whatever follows the mark."""
    head = GUIDE.read_text().split(MARK)[0]
    GUIDE.write_text(head + MARK + presets_table())


if __name__ == "__main__":
    main()
