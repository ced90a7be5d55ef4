# SPDX-License-Identifier: Apache-2.0
"""`write_report` and `write_card`: from paths to one file, written whole or not at all."""

from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.errors import UsageError
from lerobot_craft.report._card import card
from lerobot_craft.report._page import page
from lerobot_craft.report._read import read
from lerobot_craft.report._text import LANGUAGES


def write_report(paths: Sequence[Path], output: Path, language: str = "en") -> None:
    """Write one self-contained HTML page in English and Chinese.

    Args:
        paths: Folders of runs, demos and comparisons, and files of the drift command.
        output: The page, `*.html`.
        language: The language shown first, `en` or `zh`.

    Raises:
        UsageError: If a path is none of these, or the output is not a page's name.
    """
    _check(output, (".html", ".htm"), language)
    _write(output, page(read(paths), language))


def write_card(paths: Sequence[Path], output: Path, language: str = "en") -> None:
    """Write the same as a Markdown section for a model card.

    Args:
        paths: As for `write_report`.
        output: The section, `*.md`.
        language: `en` or `zh`.

    Raises:
        UsageError: If a path is none of these, or the output is not a Markdown file's name.
    """
    _check(output, (".md",), language)
    _write(output, card(read(paths), language))


def _check(output: Path, endings: tuple[str, ...], language: str) -> None:
    if language not in LANGUAGES:
        raise UsageError(f"`--lang={language}` is unknown: expected one of {', '.join(LANGUAGES)}.")
    # A wrong name could be that of a file that holds results.
    if output.suffix not in endings or output.is_dir():
        raise UsageError(f"`--output={output}`: expected a file that ends in {' or '.join(endings)}.")


def _write(output: Path, text: str) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f"{output.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(output)
