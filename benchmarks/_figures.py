# SPDX-License-Identifier: Apache-2.0
"""Command-line and JSON handling that every script in this folder shares."""

import argparse
import json
from pathlib import Path
from typing import Any


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures, by name, to FILE")
    return made


def write_figures(path: Path | None, figures: dict[str, Any]) -> None:
    """Write the figures, if a file was asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n")
        print(f"figures written to {path}")
