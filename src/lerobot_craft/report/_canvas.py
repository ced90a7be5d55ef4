# SPDX-License-Identifier: Apache-2.0
"""A sheet of SVG: lines, markers and text in two languages, coloured by the page's style; knows no chart."""

from collections.abc import Sequence

from lerobot_craft.report._names import Look
from lerobot_craft.report._text import Text, escape


class Canvas:
    """Collects the parts of one drawing.

    Args:
        width: In pixels.
        height: In pixels.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """Draw a straight line."""
        self._parts.append(f'<line class="{css}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def path(self, points: Sequence[tuple[float, float]], css: str) -> None:
        """Draw a line through points."""
        words = "L".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path class="{css}" d="M{words}"/>')

    def text(self, x: float, y: float, words: Text, css: str = "tick", anchor: str = "start") -> None:
        """Write text; both languages at the same place, of which the page shows one."""
        both = [("", words.en)] if words.en == words.zh else [(" en", words.en), (" zh", words.zh)]
        for language, one in both:
            self._parts.append(
                f'<text class="{css}{language}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(one)}</text>'
            )

    def marker(self, x: float, y: float, look: Look, radius: float = 5, *, hollow: bool = False) -> None:
        """Draw a method's marker."""
        r = radius
        shapes = {
            "circle": f"M{x - r:g} {y:g}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z",
            "square": f"M{x - 0.88 * r:g} {y - 0.88 * r:g}h{1.76 * r:g}v{1.76 * r:g}h{-1.76 * r:g}z",
            "triangle": f"M{x:g} {y - 1.15 * r:g}l{1.1 * r:g} {1.95 * r:g}h{-2.2 * r:g}z",
            "diamond": f"M{x:g} {y - 1.25 * r:g}l{1.25 * r:g} {1.25 * r:g}l{-1.25 * r:g} {1.25 * r:g}"
            f"l{-1.25 * r:g} {-1.25 * r:g}z",
        }
        css = f"mark m{look.colour}{' hollow' if hollow else ''}"
        self._parts.append(f'<path class="{css}" d="{shapes[look.marker]}"/>')

    def hover(self, x: float, y: float, width: float, height: float, words: Text) -> None:
        """Let an area tell its values when it is pointed at."""
        self._parts.append(
            f'<rect class="hit" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'data-en="{escape(words.en)}" data-zh="{escape(words.zh)}"/>'
        )

    def render(self, css: str, name: Text) -> str:
        """Return the SVG element.

        Args:
            css: Class of the element.
            name: What it shows, for those who cannot see it.
        """
        size = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" height="{self.height:g}"'
        return f'<svg class="{css}" {size} role="img" aria-label="{escape(name.en)}">{"".join(self._parts)}</svg>'


def text_width(words: str, font: float = 12) -> float:
    """Return about how wide a text is: Chinese characters are as wide as they are high."""
    return sum(font if ord(letter) > 0x2E7F else 0.56 * font for letter in words)
