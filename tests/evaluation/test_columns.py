# SPDX-License-Identifier: Apache-2.0
"""Batches from memory are LeRobot's batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests._problem import Problem


@pytest.fixture
def windows() -> dict[str, list[float]]:
    return {"action": [i / 10 for i in range(-1, 4)], "observation.state": [-0.1, 0.0]}


@pytest.mark.parametrize("episodes", [None, [1, 3]])
def test_batches_are_equal(problem: Problem, windows: dict[str, list[float]], episodes: list[int] | None) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from torch.utils.data import DataLoader

    from lerobot_craft.evaluation._columns import columns_in_memory

    dataset = LeRobotDataset("craft/small", root=problem.old, episodes=episodes, delta_timestamps=windows)
    slow = list(DataLoader(dataset, batch_size=7))
    with columns_in_memory():
        fast = list(DataLoader(dataset, batch_size=7))
    assert len(fast) == len(slow) > 1
    for one, two in zip(fast, slow, strict=True):
        assert one.keys() == two.keys()
        for name, value in two.items():
            if isinstance(value, torch.Tensor):
                assert one[name].dtype == value.dtype, name
                assert torch.equal(one[name], value), name
            else:
                assert one[name] == value, name


def test_nothing_is_left_behind() -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from lerobot_craft.evaluation._columns import BATCHED, columns_in_memory

    with columns_in_memory():
        assert BATCHED in vars(LeRobotDataset)
    assert BATCHED not in vars(LeRobotDataset)


def test_a_dataset_with_images_is_read_as_ever(make_tiny_once: Callable[[str], Any]) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from lerobot_craft.evaluation._columns import columns_in_memory

    dataset = LeRobotDataset("craft/tiny", root=make_tiny_once("act").data)
    with columns_in_memory():
        batch = dataset.__getitems__([0, 5])
    assert [frame["index"].item() for frame in batch] == [0, 5]
    assert any(name.startswith("observation.images") for name in batch[0])
