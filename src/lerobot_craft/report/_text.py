# SPDX-License-Identifier: Apache-2.0
"""Text in two languages and numbers as people read them; knows nothing of what is reported."""

import html
import math
import re
from typing import NamedTuple

LANGUAGES = ("en", "zh")
LANGUAGE_TAGS = {"en": "en", "zh": "zh-Hans"}

_CODE = re.compile(r"`([^`]+)`")
_STRONG = re.compile(r"\*\*(.+?)\*\*")


class Text(NamedTuple):
    """The same words twice; `code` and **strong** are written as in Markdown.

    Attributes:
        en: English.
        zh: Simplified Chinese.
    """

    en: str
    zh: str

    def fill(self, **values: object) -> "Text":
        """Return the text with its `{names}` replaced; a value that is a `Text` goes in by language.

        >>> Text("{who} moved", "{who}移动了").fill(who=Text("it", "它"))
        Text(en='it moved', zh='它移动了')
        """
        parts = [
            self[index].format(
                **{name: value[index] if isinstance(value, Text) else value for name, value in values.items()}
            )
            for index in range(len(LANGUAGES))
        ]
        return Text(*parts)

    def then(self, other: "Text") -> "Text":
        """Return this text and another after it; Chinese puts no space between sentences."""
        return Text(f"{self.en} {other.en}".strip(), f"{self.zh}{other.zh}")

    def html(self) -> str:
        """Return both languages as HTML; the page shows one of them."""
        if self.en == self.zh:
            return markup(self.en)
        english, chinese = markup(self.en), markup(self.zh)
        return f'<span class="en" lang="en">{english}</span><span class="zh" lang="zh-Hans">{chinese}</span>'


def same(words: str) -> Text:
    """Return words that are the same in both languages, such as names."""
    return Text(words, words)


def escape(words: str) -> str:
    """Return words that are safe as HTML text and inside quotes."""
    return html.escape(words, quote=True)


def markup(words: str) -> str:
    """Return escaped HTML with `code` and **strong** marked.

    >>> markup("a < `b`")
    'a &lt; <code>b</code>'
    """
    return _STRONG.sub(r"<strong>\1</strong>", _CODE.sub(r"<code>\1</code>", escape(words)))


def rate(value: float | None) -> str:
    """Return a share, such as a success rate.

    >>> rate(0.953), rate(None)
    ('0.95', '–')
    """
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def measured(mean: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Return a number and its interval, both with the decimals that two digits of the number need, or with two.

    >>> measured(0.42, 0.4, 0.437), measured(0.0123, None, None), measured(1.0, 0.84, 1.0), measured(315.5, 290, 340)
    (('0.42', '0.40–0.44'), ('0.012', ''), ('1.00', '0.84–1.00'), ('316', '290–340'))
    """
    leading = abs(mean) or max(abs(low or 0.0), abs(high or 0.0))
    decimals = 2 if leading == 0 else min(max(1 - math.floor(math.log10(leading)), 2), 6)
    decimals = 0 if leading >= 100 else decimals
    spelled = [f"{value:.{decimals}f}".replace("-", "−") for value in (mean, low, high) if value is not None]
    return spelled[0], span(*spelled[1:]) if len(spelled) == 3 else ""


def rates(mean: float, low: float | None, high: float | None) -> str:
    """Return a share with its interval.

    >>> rates(0.953, 0.9, 1.0), rates(0.5, None, None)
    ('0.95 (0.90–1.00)', '0.50')
    """
    return rate(mean) if low is None or high is None else f"{rate(mean)} ({span(rate(low), rate(high))})"


def span(low: str, high: str) -> str:
    """Return a range; a dash would be taken for a minus where an end is below 0.

    >>> span("0.90", "1.00"), span("−0.10", "0.20")
    ('0.90–1.00', '−0.10 … 0.20')
    """
    return f"{low} … {high}" if "−" in low + high else f"{low}–{high}"


def number(value: float | None, digits: int = 3) -> str:
    """Return any number with so many significant digits.

    >>> number(0.012345), number(1234567.0), number(0.0), number(-2.5), number(1e-7), number(300.0)
    ('0.0123', '1.23e+06', '0', '−2.5', '1e−07', '300')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    plain = 1e-4 <= abs(value) < 1e6
    text = f"{value:,.0f}" if plain and abs(value) >= 10**digits else f"{value:.{digits}g}"
    return text.replace("-", "−")


def seconds(value: float | None) -> str:
    """Return a duration.

    >>> seconds(4.26), seconds(75), seconds(7300)
    ('4.3 s', '1 min 15 s', '2 h 01 min')
    """
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(value: float | None) -> str:
    """Return a number of bytes.

    >>> size(512), size(1536), size(3 * 1024**3)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if value is None:
        return "–"
    amount = value
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
