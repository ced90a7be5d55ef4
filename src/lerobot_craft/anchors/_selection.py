# SPDX-License-Identifier: Apache-2.0
"""Which frames become anchors: spread, random, or k-center. It reads no frames."""

from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lerobot_craft.anchors._seeds import derive_seed, shuffled
from lerobot_craft.errors import CraftError

_GOLDEN_FRACTION = 0.6180339887498949
_CHUNK_ELEMENTS = 1 << 18


def select_spread(tasks: Sequence[Hashable], episodes: Sequence[int], count: int) -> list[int]:
    """Choose frames evenly over tasks, then over the episodes of a task, then over time.

    A task or episode with too few frames gives all it has, and the others make up for it. Each episode
    begins at another phase (a golden-ratio sequence): with one frame per episode they would otherwise all
    come from the middle, and no anchor would show a beginning or an end.

    Args:
        tasks: For each frame of the dataset its task.
        episodes: For each frame its episode.
        count: How many to choose.

    Returns:
        Frame indices, sorted. The same arguments give the same frames.

    Raises:
        CraftError: There are fewer frames than `count`, or the two sequences differ in length.
    """
    if len(tasks) != len(episodes):
        raise CraftError(f"`tasks` got {len(tasks)} and `episodes` {len(episodes)}, expected one of each per frame.")
    _check_count(count, len(tasks))
    groups: dict[Hashable, dict[int, list[int]]] = {}
    for frame, (task, episode) in enumerate(zip(tasks, episodes, strict=True)):
        groups.setdefault(task, {}).setdefault(episode, []).append(frame)
    by_task = [list(parts.values()) for parts in groups.values()]
    chosen: list[int] = []
    phase = 0.5
    for parts, quota in zip(by_task, _shares(count, [sum(map(len, p)) for p in by_task]), strict=True):
        for frames, share in zip(parts, _shares(quota, [len(frames) for frames in parts]), strict=True):
            if share:
                places = np.floor((np.arange(share) + phase) * len(frames) / share).astype(int)
                chosen.extend(frames[place] for place in places)
                phase = (phase + _GOLDEN_FRACTION) % 1.0
    return sorted(chosen)


def select_random(total: int, count: int, seed: int = 42) -> list[int]:
    """Choose `count` of `total` frames at random, without repetition.

    Returns:
        Frame indices, sorted.
    """
    _check_count(count, total)
    chosen: list[int] = np.sort(shuffled(total, "random anchors", seed)[:count]).tolist()
    return chosen


def select_k_center(features: Tensor, count: int, seed: int = 42) -> list[int]:
    """Choose frames greedily, each the farthest from those chosen before (Gonzalez, 1985).

    The largest distance from any frame to its nearest anchor is at most twice the best possible.

    Args:
        features: The teacher's features, [frames, dim].
        count: How many to choose.
        seed: Chooses the first one.

    Returns:
        Rows of `features` in the order chosen, so that any prefix is a selection too.

    Raises:
        CraftError: The shape is wrong, a value is not finite, or there are fewer frames than `count`.
    """
    if features.ndim != 2:
        raise CraftError(f"`features` got shape {tuple(features.shape)}, expected [frames, dim].")
    _check_count(count, len(features))
    step = max(1, _CHUNK_ELEMENTS // max(1, features.shape[1]))  # differences stay in the processor's cache
    bounds = list(pairwise([*range(0, len(features), step), len(features)]))
    nearest = torch.full((len(features),), torch.inf, device=features.device)
    chosen = [derive_seed("k-center", seed) % len(features)]
    while True:
        centre = features[chosen[-1]].float()
        for start, end in bounds:
            distance = (features[start:end].float() - centre).square_().sum(1)
            nearest[start:end] = nearest[start:end].minimum(distance)
        nearest[chosen[-1]] = -1.0  # never again, even when all that is left are duplicates
        if len(chosen) == 1 and not bool(nearest.isfinite().all()):
            raise CraftError("`features` got values that are not finite, expected numbers.")
        if len(chosen) == count:
            return chosen
        chosen.append(int(nearest.argmax()))


def _shares(total: int, capacities: Sequence[int]) -> NDArray[np.int64]:
    """Share `total` out evenly, nobody above its capacity; the remainder goes to evenly spaced ones."""
    shares = np.zeros(len(capacities), dtype=np.int64)
    room = np.asarray(capacities, dtype=np.int64)
    left = total
    while left:
        open_ones = np.flatnonzero(shares < room)
        each = left // len(open_ones)
        if each == 0:
            spaced = np.floor((np.arange(left) + 0.5) * len(open_ones) / left).astype(int)
            shares[open_ones[spaced]] += 1
            break
        given = np.minimum(each, room[open_ones] - shares[open_ones])
        shares[open_ones] += given
        left -= int(given.sum())
    return shares


def _check_count(count: int, total: int) -> None:
    if not 1 <= count <= total:
        raise CraftError(f"`count` got {count} anchors of {total} frames, expected 1 to {total}.")
