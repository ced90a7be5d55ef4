# SPDX-License-Identifier: Apache-2.0
"""From values to places on an axis, and round numbers for its ticks; draws nothing."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """One axis.

    Attributes:
        low: Value at `start`.
        high: Value at `end`.
        start: Place of `low`, in pixels.
        end: Place of `high`, in pixels.
        log: Whether equal distances are equal ratios.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value, kept within the axis."""
        if self.log:
            share = (math.log10(max(value, self.low)) - math.log10(self.low)) / (
                math.log10(self.high) - math.log10(self.low)
            )
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)

    def ticks(self, count: int) -> list[float]:
        """Return about so many round values within the axis."""
        if self.log:
            bottom, top = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((top - bottom + 1) / count))
            return [10.0**power for power in range(bottom, top + 1, every)]
        step = round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]


def round_step(rough: float) -> float:
    """Return the nearest of 1, 2, 2.5, 5 and 10 times a power of ten that is no smaller.

    >>> [round_step(x) for x in (0.013, 0.3, 7.0, 40.0)]
    [0.02, 0.5, 10.0, 50.0]
    """
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1.0, 2.0, 2.5, 5.0):
        if rough <= factor * power * (1 + 1e-9):
            return float(f"{factor * power:.12g}")
    return float(f"{10 * power:.12g}")


def fit(values: Iterable[float], start: float, end: float, *, zero: bool = False, log: bool = False) -> Scale:
    """Return an axis that holds all values.

    Args:
        values: The values; at least one.
        start: Place of the lower end.
        end: Place of the upper end.
        zero: Whether a linear axis begins at 0.
        log: Whether it is logarithmic where positive values span more than two decades; 0 is at its lower end.
    """
    found = list(values)
    low, high = min(found), max(found)
    least = min((value for value in found if value > 0), default=math.inf)
    if log and low >= 0 and high / least > 100:
        return Scale(10 ** math.floor(math.log10(least)), 10 ** math.ceil(math.log10(high)), start, end, log=True)
    if zero and low >= 0:
        low = 0.0
    if high == low:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    room = 0.04 * (high - low)
    return Scale(low if zero and low == 0 else low - room, high + room, start, end)
