# SPDX-License-Identifier: Apache-2.0
"""Numbers over the steps of training as lines; knows no run."""

from collections.abc import Sequence
from typing import NamedTuple

from lerobot_craft.report._canvas import Canvas, text_width
from lerobot_craft.report._names import Look
from lerobot_craft.report._scale import Scale, fit
from lerobot_craft.report._text import Text, number, same

MOST_POINTS = 300
MOST_HOVERS = 80
STEP = Text("step", "步")


class Line(NamedTuple):
    """One line.

    Attributes:
        title: What it is.
        look: Its colour.
        points: Step and value, in order.
        dashed: Whether it is a limit rather than a measurement.
    """

    title: Text
    look: Look
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def line_chart(lines: Sequence[Line], y_title: Text, width: int, *, limits: tuple[float, float] | None = None) -> str:
    """Return the chart as SVG.

    Args:
        lines: What to draw; at least one with a point.
        y_title: What the values are.
        width: In pixels.
        limits: Ends of the vertical axis; fitted to the values where None.
    """
    lines = [line._replace(points=thinned(line.points, MOST_POINTS)) for line in lines if line.points]
    height = max(210, round(0.52 * width))
    canvas = Canvas(width, height)
    top, bottom, right = 26, height - 34, width - 10
    values = [value for line in lines for _, value in line.points]
    y = Scale(*limits, bottom, top) if limits is not None else fit(values, bottom, top, zero=True, log=True)
    ticks = y.ticks(5)
    left = 10 + max(text_width(number(tick), 11) for tick in ticks)
    steps = [step for line in lines for step, _ in line.points]
    x = Scale(min(0.0, min(steps)), max(steps) or 1.0, left, right)
    _axes(canvas, x, y, ticks, y_title)
    for line in lines:
        # A limit is drawn over everything else, in the colour of what it limits.
        css = f"line c{line.look.colour}{' dashed' if line.dashed else ''}"
        places = [(x(step), y(value)) for step, value in line.points]
        if len(places) > 1:
            canvas.path(places, css)
        if not line.dashed and len(places) <= 12:
            for place in places:
                canvas.marker(*place, line.look, 3)
    _hovers(canvas, lines, x, top, bottom)
    return canvas.render("chart", y_title)


def _axes(canvas: Canvas, x: Scale, y: Scale, ticks: list[float], y_title: Text) -> None:
    for tick in ticks:
        place = y(tick)
        canvas.line(x.start, place, x.end, place, "grid")
        canvas.text(x.start - 6, place + 4, same(number(tick)), "tick", "end")
    canvas.line(x.start, y.start, x.end, y.start, "axis")
    for tick in x.ticks(max(3, round((x.end - x.start) / 90))):
        canvas.text(x(tick), y.start + 16, same(number(tick, 6)), "tick", "middle")
    canvas.text(x.end, y.start + 31, STEP, "tick", "end")
    canvas.text(2, 12, y_title, "name")


def _hovers(canvas: Canvas, lines: Sequence[Line], x: Scale, top: float, bottom: float) -> None:
    steps = sorted({step for line in lines for step, _ in line.points})
    shown = [step for step, _ in thinned([(step, 0.0) for step in steps], MOST_HOVERS)]
    places = [x(step) for step in shown]
    by_step = [dict(line.points) for line in lines]
    for index, (step, place) in enumerate(zip(shown, places, strict=True)):
        before = (places[index - 1] + place) / 2 if index else x.start - 4
        after = (places[index + 1] + place) / 2 if index + 1 < len(places) else x.end + 4
        words = Text("step {step}", "第 {step} 步").fill(step=number(step, 6))
        for line, known in zip(lines, by_step, strict=True):
            if step in known:
                words = Text(
                    *(f"{one}\n{title}: {number(known[step])}" for one, title in zip(words, line.title, strict=True))
                )
        canvas.hover(round(before, 1), top, round(after - before, 1), bottom - top, words)


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return at most so many of the points, evenly spread, first and last among them.

    >>> thinned([(float(i), 0.0) for i in range(9)], 3)
    [(0.0, 0.0), (4.0, 0.0), (8.0, 0.0)]
    """
    if len(points) <= most:
        return list(points)
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]
