# SPDX-License-Identifier: Apache-2.0
"""Parts of a page: sections, figures, legends, tables, commands; knows nothing of what is reported."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lerobot_craft.report._canvas import Canvas
from lerobot_craft.report._model import Estimate
from lerobot_craft.report._names import Look
from lerobot_craft.report._text import Text, escape, measured, same

FULL_WIDTH = 880
HALF_WIDTH = 428
NARROW_WIDTH = 344


class Section(NamedTuple):
    """One section of the page.

    Attributes:
        key: Its name in links.
        title: Its heading.
        body: HTML; a section without it is left out.
    """

    key: str
    title: Text
    body: str


class Cell(NamedTuple):
    """One cell of a table.

    Attributes:
        words: What it shows.
        value: What it is sorted by; the words where None.
        shade: From 0 to 1: how strongly it is coloured; not at all where None.
        look: Marker in front of the words, if any.
        kind: `number`, `words`, or `name` where it names its row.
        below: A second, smaller line, such as an interval.
    """

    words: Text
    value: float | None = None
    shade: float | None = None
    look: Look | None = None
    kind: str = "number"
    below: str = ""


def label(words: Text, look: Look | None = None) -> Cell:
    """Return a cell that names its row."""
    return Cell(words, look=look, kind="name")


def value(words: str, amount: float | None, shade: float | None = None, below: str = "") -> Cell:
    """Return a cell with a number; one without is sorted last."""
    return Cell(same(words), amount, shade, below=below)


def estimate(found: Estimate | None) -> Cell:
    """Return a cell with a measured number and, below it, its interval."""
    if found is None:
        return value("–", None)
    mean, interval = measured(found.mean, found.low, found.high)
    return value(mean, found.mean, below=interval)


def figure(draw: Callable[[int], str], caption: Text, *, wide: int = FULL_WIDTH, legend: str = "") -> str:
    """Return a figure, drawn once for wide pages and once for narrow ones, whose text would shrink otherwise.

    Args:
        draw: Returns the drawing of a given width.
        caption: What a newcomer should see in it.
        wide: Width on a wide page.
        legend: HTML above the drawing.
    """
    css = "half" if wide == HALF_WIDTH else "full"
    return (
        f'<figure class="{css}">{legend}<div class="wide">{draw(wide)}</div>'
        f'<div class="narrow">{draw(NARROW_WIDTH)}</div>{_caption(caption)}</figure>'
    )


def _caption(words: Text) -> str:
    return f"<figcaption>{words.html()}</figcaption>" if words.en else ""


def legend(entries: Sequence[tuple[Text, Look | None, bool]]) -> str:
    """Return a legend: title, look, and whether it is a dashed line rather than a marker."""
    return '<div class="legend">' + "".join(_entry(*entry) for entry in entries) + "</div>"


def _entry(words: Text, look: Look | None, dashed: bool) -> str:
    return f"<span>{swatch(look, dashed=dashed)}{words.html()}</span>"


def swatch(look: Look | None, *, dashed: bool = False) -> str:
    """Return a small picture of a look; of the reference line where None."""
    canvas = Canvas(18, 12)
    if dashed or look is None:
        canvas.line(1, 6, 17, 6, "reference" if look is None else f"line c{look.colour} dashed")
    else:
        canvas.marker(9, 6, look, 4.5)
    return canvas.render("swatch", same("")).replace(' role="img" aria-label=""', ' aria-hidden="true"')


def table(heads: Sequence[Text], rows: Sequence[Sequence[Cell]], caption: Text, *, sortable: bool = True) -> str:
    """Return a table that scrolls inside its own box where the page is too narrow.

    Args:
        heads: One per column.
        rows: The cells; at least one row.
        caption: What a newcomer should see in it.
        sortable: Whether a click on a head sorts it.
    """
    kinds = [cell.kind for cell in rows[0]]
    can_sort = sortable and len(rows) > 1
    head = "".join(_head(words, kind, can_sort) for words, kind in zip(heads, kinds, strict=True))
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    css = ' class="sortable"' if can_sort else ""
    return (
        f'<figure class="full table"><div class="scroll" tabindex="0"><table{css}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{_caption(caption)}</figure>"
    )


def _head(words: Text, kind: str, can_sort: bool) -> str:
    css = {"number": ' class="n"', "words": ' class="w"'}.get(kind, "")
    inner = f'<button type="button">{words.html()}</button>' if can_sort and words.en else words.html()
    return f'<th scope="col"{css}>{inner}</th>'


def _cell(cell: Cell) -> str:
    classes = (["n"] if cell.kind == "number" else []) + (["heat"] if cell.shade is not None else [])
    classes += (["marked"] if cell.look is not None else []) + (["w"] if cell.kind == "words" else [])
    css = f' class="{" ".join(classes)}"' if classes else ""
    style = "" if cell.shade is None else f' style="--v:{min(max(cell.shade, 0.0), 1.0):.3f}"'
    sort = "" if cell.value is None else f' data-v="{cell.value:g}"'
    mark = "" if cell.look is None else swatch(cell.look)
    below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
    tag, scope = ("th", ' scope="row"') if cell.kind == "name" else ("td", "")
    return f"<{tag}{scope}{css}{style}{sort}>{mark}{cell.words.html()}{below}</{tag}>"


def words(text: Text) -> Cell:
    """Return a cell with words."""
    return Cell(text, kind="words")


def note(words: Text) -> str:
    """Return a paragraph."""
    return f"<p>{words.html()}</p>"


def heading(words: Text) -> str:
    """Return a heading inside a section."""
    return f"<h3>{words.html()}</h3>"


def command(words: str) -> str:
    """Return a command, one flag a line, so that it can be read and copied."""
    return f"<pre><code>{escape(broken(words))}</code></pre>"


def broken(words: str) -> str:
    r"""Return a command with a line for each flag once it is long.

    >>> print(broken("lerobot-craft train --policy.path=a-teacher-with-a-long-name --dataset.repo_id=me/another"))
    lerobot-craft train \
        --policy.path=a-teacher-with-a-long-name \
        --dataset.repo_id=me/another
    """
    if len(words) <= 80:
        return words
    return re.sub(r" (?=--?[A-Za-z'])", " \\\\\n    ", words)
