# SPDX-License-Identifier: Apache-2.0
"""The frames two policies are compared on: chosen over tasks and episodes, read in batches; asks no policy."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from lerobot_craft.anchors import select_spread
from lerobot_craft.anchors._seeds import shuffled
from lerobot_craft.caching._source import collate
from lerobot_craft.evaluation._columns import Columns

type Batch = dict[str, Any]


@dataclass(frozen=True)
class Frames:
    """Some frames of a dataset.

    Attributes:
        dataset: Where they are from, opened with the observation history that the policy reads.
        indices: Which.
        tasks: The instruction of each.
        episodes: The episode of each.
        batch_size: How many go through a policy at once. A frame's noise depends on its place in its batch.
    """

    dataset: LeRobotDataset
    indices: tuple[int, ...]
    tasks: tuple[str, ...]
    episodes: tuple[int, ...]
    batch_size: int
    _kept: list[Batch] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    def batches(self) -> Iterator[Batch]:
        """Yield the frames as the dataset gives them, always in the same batches.

        Frames without images are read once, column by column, and kept: many checkpoints are compared on them. Images
        are decoded again each time, so that memory does not grow with their number.
        """
        if self.dataset.meta.camera_keys:
            chosen = Subset(self.dataset, list(self.indices))
            yield from DataLoader(chosen, batch_size=self.batch_size, collate_fn=collate)
            return
        if not self._kept:
            columns = Columns(self.dataset)
            self._kept.extend(collate(columns.batch(self.indices[place])) for place in self.places())
        yield from self._kept

    def places(self) -> list[slice]:
        """Return where the frames of each batch stand among all of them."""
        return [slice(start, start + self.batch_size) for start in range(0, len(self), self.batch_size)]

    def column(self, name: str) -> Tensor:
        """Return one feature of the present step for every frame, [frames, dim]; not for images."""
        column = self.dataset.hf_dataset.select_columns([name]).with_format("numpy")
        return torch.from_numpy(np.asarray(column[list(self.indices)][name]))


def choose_frames(dataset: LeRobotDataset, count: int, seed: int, batch_size: int) -> Frames:
    """Choose frames evenly over tasks and then over the episodes of a task, at random moments.

    Args:
        dataset: Where they are from.
        count: How many; all of them where there are not more.
        seed: Of the moments; the same seed gives the same frames.
        batch_size: How many go through a policy at once.
    """
    columns = dataset.hf_dataset.with_format(None)
    tasks, episodes = list(columns["task_index"]), list(columns["episode_index"])
    order = shuffled(len(tasks), "drift frames", seed).tolist()
    spread = select_spread(
        [tasks[frame] for frame in order], [episodes[frame] for frame in order], min(count, len(tasks))
    )
    indices = sorted(order[place] for place in spread)
    names = list(dataset.meta.tasks.index)
    return Frames(
        dataset,
        tuple(indices),
        tuple(names[tasks[frame]] for frame in indices),
        tuple(episodes[frame] for frame in indices),
        batch_size,
    )
