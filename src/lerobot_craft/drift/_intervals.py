# SPDX-License-Identifier: Apache-2.0
"""Means with 95 % intervals, bootstrapped over episodes; knows no policy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

RESAMPLES = 1000


@dataclass(frozen=True)
class Interval:
    """A mean over frames and where it would lie, in 95 of 100 cases, with other episodes.

    Attributes:
        mean: The mean.
        low: Its lower bound.
        high: Its upper bound.
    """

    mean: float
    low: float
    high: float


def bootstrap(values: Tensor, episodes: Sequence[int], seed: int) -> list[Interval]:
    """Return the mean of each column, with an interval from resampled episodes.

    Frames of one episode are alike, so it is episodes that are drawn: drawing frames would promise more than the data
    holds.

    Args:
        values: One row per frame, [frames, quantities].
        episodes: The episode of each frame.
        seed: Of the resampling.
    """
    rows = values.double().cpu().numpy()
    _, places = np.unique(np.asarray(episodes), return_inverse=True)
    sizes = np.bincount(places)
    sums = np.stack([np.bincount(places, weights=column) for column in rows.T], axis=1)
    count = len(sizes)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    means = (drawn @ sums) / (drawn @ sizes)[:, None]
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    # Rounding must not put a mean outside its own interval.
    return [
        Interval(float(mean), float(min(bottom, mean)), float(max(top, mean)))
        for mean, bottom, top in zip(rows.mean(axis=0), low, high, strict=True)
    ]
