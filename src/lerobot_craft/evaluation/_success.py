# SPDX-License-Identifier: Apache-2.0
"""Success of a policy on one task, with its interval; runs nothing."""

import math
from dataclasses import dataclass

# Two-sided 95 %.
Z = 1.959964


@dataclass(frozen=True)
class TaskSuccess:
    """How many episodes of a task succeeded.

    Attributes:
        task: Name of the task.
        outcomes: One per episode, in the order of their seeds, so that two policies can be compared seed by seed.
    """

    task: str
    outcomes: tuple[bool, ...]

    @property
    def rate(self) -> float:
        """Share of the episodes that succeeded."""
        return sum(self.outcomes) / len(self.outcomes)


def wilson_interval(successes: int, episodes: int) -> tuple[float, float]:
    """Return the 95 % interval of a success rate (Wilson 1927): right near 0 and 1 too, where the usual one is empty.

    >>> low, high = wilson_interval(20, 20)
    >>> round(low, 3), high
    (0.839, 1.0)

    Raises:
        ValueError: If there were no episodes, or more successes than episodes.
    """
    if episodes < 1 or not 0 <= successes <= episodes:
        raise ValueError(f"Got {successes} successes in {episodes} episodes: expected 1 or more episodes.")
    rate, spread = successes / episodes, Z**2 / episodes
    centre = (rate + spread / 2) / (1 + spread)
    half = Z * math.sqrt(rate * (1 - rate) / episodes + spread / (4 * episodes)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)
