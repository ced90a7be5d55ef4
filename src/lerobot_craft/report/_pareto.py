# SPDX-License-Identifier: Apache-2.0
"""Old against new success as points, and the front of those that nothing beats; knows no file."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from lerobot_craft.report._canvas import Canvas, text_width
from lerobot_craft.report._model import Estimate
from lerobot_craft.report._names import Look
from lerobot_craft.report._scale import Scale
from lerobot_craft.report._text import Text, number, rates, same

NAME = Text("success on old tasks against success on new tasks", "旧任务与新任务的成功率")
LABEL_HEIGHT = 14
# A name further than this from its point needs a line to it.
FAR = 20


class Point(NamedTuple):
    """One method.

    Attributes:
        title: Its name.
        look: How it is drawn.
        old: Success on the old tasks.
        new: Success on the new ones.
    """

    title: Text
    look: Look
    old: Estimate
    new: Estimate


class Box(NamedTuple):
    """A rectangle that text may not cover."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: "Box") -> float:
        """Return the area both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0.0) * max(height, 0.0)


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in one success without losing in the other, from left to right."""
    best = [
        point
        for point in points
        if not any(
            other.old.mean >= point.old.mean
            and other.new.mean >= point.new.mean
            and (other.old.mean, other.new.mean) != (point.old.mean, point.new.mean)
            for other in points
        )
    ]
    return sorted(best, key=lambda point: (point.old.mean, -point.new.mean))


def pareto(points: Sequence[Point], teacher_old: float | None, width: int, *, labels: bool = True) -> str:
    """Return the figure as SVG.

    Args:
        points: The methods.
        teacher_old: The teacher's success on the old tasks, if known: what cannot be kept better than whole.
        width: In pixels.
        labels: Whether names stand beside their points.
    """
    height = min(width, 440) if width > 400 else round(1.05 * width)
    canvas = Canvas(width, height)
    x = Scale(_lower_end([point.old for point in points]) - 0.02, 1.04, 44, width - 12)
    y = Scale(_lower_end([point.new for point in points]) - 0.02, 1.04, height - 44, 28)
    _axes(canvas, x, y)
    if teacher_old is not None:
        canvas.line(x(teacher_old), y.start, x(teacher_old), y.end, "reference")
    line = front(points)
    steps: list[tuple[float, float]] = []
    for point in line:
        if steps:
            # Between two points only the lower of their new successes is reached at the higher old one.
            steps.append((steps[-1][0], y(point.new.mean)))
        steps.append((x(point.old.mean), y(point.new.mean)))
    if len(steps) > 1:
        canvas.path(steps, "front")
    for point in points:
        _cross(canvas, point, x, y)
    for point in points:
        canvas.marker(x(point.old.mean), y(point.new.mean), point.look, 6)
    if labels:
        _labels(canvas, points, x, y)
    for point in points:
        words = Text("{t}\nold {o}\nnew {n}", "{t}\n旧任务 {o}\n新任务 {n}")
        filled = words.fill(t=point.title, o=_spelled(point.old), n=_spelled(point.new))
        canvas.hover(x(point.old.mean) - 11, y(point.new.mean) - 11, 22, 22, filled)
    return canvas.render("chart", NAME)


def _lower_end(estimates: Sequence[Estimate]) -> float:
    """Return where an axis begins: a quarter below everything, so that a crowd in the corner is drawn apart."""
    lowest = min(one.mean if one.low is None else one.low for one in estimates)
    return min(max(math.floor(4 * lowest) / 4, 0.0), 0.75)


def _axes(canvas: Canvas, x: Scale, y: Scale) -> None:
    for tick in x.ticks(5):
        canvas.line(x(tick), y.start, x(tick), y.end, "grid")
        canvas.text(x(tick), y.start + 16, same(number(tick)), "tick", "middle")
    for tick in y.ticks(5):
        canvas.line(x.start, y(tick), x.end, y(tick), "grid")
        canvas.text(x.start - 6, y(tick) + 4, same(number(tick)), "tick", "end")
    canvas.text(2, 13, Text("success on the new task(s) ↑", "新任务成功率 ↑"), "name")
    canvas.text(x.end, y.start + 36, Text("success on the old tasks →", "旧任务成功率 →"), "name", "end")


def _cross(canvas: Canvas, point: Point, x: Scale, y: Scale) -> None:
    css = f"range thin c{point.look.colour}"
    across, along = y(point.new.mean), x(point.old.mean)
    if point.old.low is not None and point.old.high is not None:
        canvas.line(x(point.old.low), across, x(point.old.high), across, css)
    if point.new.low is not None and point.new.high is not None:
        canvas.line(along, y(point.new.low), along, y(point.new.high), css)


def _labels(canvas: Canvas, points: Sequence[Point], x: Scale, y: Scale) -> None:
    """Write each name where it covers least: beside, above or below its point, further off where it is crowded."""
    places = [(x(point.old.mean), y(point.new.mean)) for point in points]
    taken = [Box(px - 7, py - 7, px + 7, py + 7) for px, py in places]
    taken += [box for point in points for box in _bars(point, x, y)]
    inside = Box(x.start, 18, canvas.width, y.start)
    for point, (px, py) in zip(points, places, strict=True):
        wide = max(text_width(one) for one in point.title)
        candidates = [
            Box(left, middle - LABEL_HEIGHT / 2, left + wide, middle + LABEL_HEIGHT / 2)
            for shift in (0, -14, 14, -28, 28, -42, 42, -56, 56)
            for left, middle in (
                (px + 11, py + shift),
                (px - 11 - wide, py + shift),
                (px - 6, py + shift + (16 if shift >= 0 else -2)),
            )
        ]
        costs = [_cost(box, taken, inside) + 0.02 * index for index, box in enumerate(candidates)]
        best = candidates[costs.index(min(costs))]
        taken.append(best)
        on_left = best.right <= px
        edge = best.right if on_left else best.left
        middle = (best.top + best.bottom) / 2
        if abs(middle - py) > FAR:
            canvas.line(px, py, edge + (2 if on_left else -2), middle, "leader")
        canvas.text(edge, best.bottom - 3, point.title, "label", "end" if on_left else "start")


def _bars(point: Point, x: Scale, y: Scale) -> list[Box]:
    """Return where the intervals of a point are drawn."""
    px, py, (old, new) = x(point.old.mean), y(point.new.mean), (point.old, point.new)
    bars = []
    if old.low is not None and old.high is not None:
        bars.append(Box(x(old.low), py - 1, x(old.high), py + 1))
    if new.low is not None and new.high is not None:
        bars.append(Box(px - 1, y(new.high), px + 1, y(new.low)))
    return bars


def _cost(box: Box, taken: Sequence[Box], inside: Box) -> float:
    area = (box.right - box.left) * (box.bottom - box.top)
    return sum(box.overlap(other) for other in taken) + 2 * (area - box.overlap(inside))


def _spelled(estimate: Estimate) -> str:
    return rates(estimate.mean, estimate.low, estimate.high)
