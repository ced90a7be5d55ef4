# SPDX-License-Identifier: Apache-2.0
"""Batches of small LeRobotDatasets from columns in memory: the same batches as LeRobot's, without its wait.

A LeRobotDataset reads a batch frame by frame through Arrow: 90 ms for 64 frames of states, where the step that uses
them takes 11. Inside `columns_in_memory` whole batches are cut out of tensors instead. Datasets with images or video
are read as ever.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch import Tensor

# The name torch's loader looks for: whole batches at once.
BATCHED = "__getitems__"


@contextmanager
def columns_in_memory() -> Iterator[None]:
    """Let every LeRobotDataset without images give its batches from memory, inside this context and this process."""
    read: weakref.WeakKeyDictionary[LeRobotDataset, Columns] = weakref.WeakKeyDictionary()

    def batch(dataset: LeRobotDataset, indices: Sequence[int]) -> list[dict[str, Any]]:
        if dataset.meta.camera_keys:
            return [dataset[index] for index in indices]
        if dataset not in read:
            read[dataset] = Columns(dataset)
        return read[dataset].batch(indices)

    setattr(LeRobotDataset, BATCHED, batch)
    try:
        yield
    finally:
        delattr(LeRobotDataset, BATCHED)


class Columns:
    """The columns of one dataset.

    Args:
        dataset: The dataset, whose episodes and windows of time are respected.
    """

    def __init__(self, dataset: LeRobotDataset) -> None:
        frames = dataset.hf_dataset.with_format("numpy")[:]
        self._columns = {name: torch.from_numpy(np.asarray(values)) for name, values in frames.items()}
        self._tasks = list(dataset.meta.tasks.index)
        episodes = self._columns["episode_index"]
        # Frames of an episode are neighbours, so its window ends where the next one's number begins.
        _, lengths = torch.unique_consecutive(episodes, return_counts=True)
        ends = lengths.cumsum(0)
        self._start = (ends - lengths).repeat_interleave(lengths)
        self._end = ends.repeat_interleave(lengths)
        self._windows = {name: torch.tensor(deltas) for name, deltas in (dataset.reader.delta_indices or {}).items()}

    def batch(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        rows = torch.as_tensor(list(indices))
        taken: dict[str, Tensor] = {name: column[rows] for name, column in self._columns.items()}
        start, end = self._start[rows, None], self._end[rows, None]
        for name, deltas in self._windows.items():
            wanted = rows[:, None] + deltas
            taken[name] = self._columns[name][torch.minimum(torch.maximum(wanted, start), end - 1)]
            taken[f"{name}_is_pad"] = (wanted < start) | (wanted >= end)
        tasks = [self._tasks[number] for number in taken["task_index"].tolist()]
        return [
            {**{name: values[row] for name, values in taken.items()}, "task": tasks[row]} for row in range(len(rows))
        ]
