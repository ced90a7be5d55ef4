# SPDX-License-Identifier: Apache-2.0
"""Numbers with intervals, one row per name, in panels beside each other; knows no method."""

from collections.abc import Sequence
from typing import NamedTuple

from lerobot_craft.report._canvas import Canvas, text_width
from lerobot_craft.report._model import Estimate
from lerobot_craft.report._names import Look
from lerobot_craft.report._scale import Scale, fit
from lerobot_craft.report._text import Text, measured, number, rates, same

FEWEST_PIXELS = 180


class Dot(NamedTuple):
    """One number.

    Attributes:
        title: Whose it is.
        estimate: The number.
        look: How it is drawn.
    """

    title: Text
    estimate: Estimate
    look: Look


class Row(NamedTuple):
    """One row.

    Attributes:
        title: What stands at its left.
        cells: For each panel the dots of this row.
    """

    title: Text
    cells: Sequence[Sequence[Dot]]


class Panel(NamedTuple):
    """One axis.

    Attributes:
        title: What the numbers are.
        limits: Ends of the axis; fitted where None.
        reference: A value to compare with, drawn as a dashed line.
    """

    title: Text
    limits: tuple[float, float] | None = None
    reference: float | None = None


def forest(panels: Sequence[Panel], rows: Sequence[Row], width: int, name: Text) -> str:
    """Return the figure as SVG; where titles are long they stand above their rows.

    Args:
        panels: The axes.
        rows: The rows.
        width: In pixels.
        name: What it shows, for those who cannot see it.
    """
    longest = max((text_width(one, 13) for row in rows for one in row.title), default=0.0)
    # Titles that would leave their numbers too little room stand above their rows.
    above = (width - longest) / len(panels) < FEWEST_PIXELS
    head = 18 if above else 0
    series = max((len(cell) for row in rows for cell in row.cells), default=1)
    row_height = head + 18 + 9 * max(series, 1)
    top = 34
    canvas = Canvas(width, top + row_height * len(rows) + 28)
    left, gap = (8.0, 30) if above else (longest + 18, 44)
    panel_width = (width - 10 - left - gap * (len(panels) - 1)) / len(panels)
    for index, panel in enumerate(panels):
        start = left + index * (panel_width + gap)
        scale = _scale(panel, [dot for row in rows for dot in row.cells[index]], start, start + panel_width)
        _frame(canvas, panel, scale, top)
        for number_of_row, row in enumerate(rows):
            base, cell = top + number_of_row * row_height + head, row.cells[index]
            for place, dot in enumerate(cell):
                _dot(canvas, dot, scale, base + (row_height - head) / 2 + 9 * (place - (len(cell) - 1) / 2))
            if cell:
                canvas.hover(start, base, panel_width, row_height - head, _words(row, panel, cell))
    for number_of_row, row in enumerate(rows):
        base = top + number_of_row * row_height
        if above:
            canvas.text(2, base + 13, row.title, "row")
        else:
            canvas.text(left - 16, base + row_height / 2 + 4, row.title, "row", "end")
    return canvas.render("chart", name)


def _scale(panel: Panel, dots: Sequence[Dot], start: float, end: float) -> Scale:
    if panel.limits is not None:
        return Scale(*panel.limits, start, end)
    values = [value for dot in dots for value in (dot.estimate.mean, dot.estimate.low, dot.estimate.high)]
    known = [value for value in values if value is not None]
    return fit([*known, *([] if panel.reference is None else [panel.reference])] or [0.0, 1.0], start, end, zero=True)


def _frame(canvas: Canvas, panel: Panel, scale: Scale, top: float) -> None:
    bottom = canvas.height - 24
    for tick in scale.ticks(max(2, round((scale.end - scale.start) / 60))):
        place = scale(tick)
        canvas.line(place, top - 8, place, bottom, "grid")
        canvas.text(place, bottom + 15, same(number(tick)), "tick", "middle")
    if panel.reference is not None:
        place = scale(panel.reference)
        canvas.line(place, top - 8, place, bottom, "reference")
    canvas.text(scale.start - 2, 14, panel.title, "name")


def _dot(canvas: Canvas, dot: Dot, scale: Scale, y: float) -> None:
    estimate = dot.estimate
    if estimate.low is not None and estimate.high is not None:
        canvas.line(scale(estimate.low), y, scale(estimate.high), y, f"range c{dot.look.colour}")
    canvas.marker(scale(estimate.mean), y, dot.look, 5)


def _words(row: Row, panel: Panel, cell: Sequence[Dot]) -> Text:
    lines = [Text("{row}, {panel}", "{row}，{panel}").fill(row=row.title, panel=panel.title)]
    for dot in cell:
        found = dot.estimate
        is_rate = panel.limits == (0.0, 1.0)
        value = rates(found.mean, found.low, found.high) if is_rate else with_interval(found)
        lines.append(same(value) if dot.title == row.title else Text("{t}: {v}", "{t}：{v}").fill(t=dot.title, v=value))
    return Text("\n".join(line.en for line in lines), "\n".join(line.zh for line in lines))


def with_interval(estimate: Estimate) -> str:
    """Return a number with its interval.

    >>> with_interval(Estimate(0.95, 0.9, 1.0)), with_interval(Estimate(2.0))
    ('0.95 (0.90–1.00)', '2.00')
    """
    mean, interval = measured(estimate.mean, estimate.low, estimate.high)
    return f"{mean} ({interval})" if interval else mean
