# SPDX-License-Identifier: Apache-2.0
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lerobot_craft.anchors import select_k_center, select_random, select_spread
from lerobot_craft.errors import CraftError


@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=80)
def test_spread_is_even_over_tasks_and_episodes(lengths: list[list[int]], data: st.DataObject) -> None:
    """`lengths[task][episode]` is a number of frames; water-filling is even up to what each can give."""
    tasks, episodes = [], []
    number = 0
    for task, parts in enumerate(lengths):
        for length in parts:
            tasks += [task] * length
            episodes += [number] * length
            number += 1
    count = data.draw(st.integers(1, len(tasks)))
    chosen = select_spread(tasks, episodes, count)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == count
    per_task = Counter(tasks[frame] for frame in chosen)
    size = Counter(tasks)
    largest = max(per_task.values())
    assert all(per_task[task] >= min(size[task], largest - 1) for task in size)
    per_episode = Counter(episodes[frame] for frame in chosen)
    length_of = Counter(episodes)
    task_of = dict(zip(episodes, tasks, strict=True))
    for episode in length_of:
        most = max(per_episode[other] for other in length_of if task_of[other] == task_of[episode])
        assert per_episode[episode] >= min(length_of[episode], most - 1)


def test_spread_covers_time_even_with_one_frame_per_episode() -> None:
    frames = 100
    episodes = [episode for episode in range(50) for _ in range(frames)]
    chosen = select_spread(["a"] * len(episodes), episodes, 50)
    assert [frame // frames for frame in chosen] == list(range(50))
    times = torch.tensor([frame % frames for frame in chosen]).float()
    assert torch.histc(times, 5, 0, frames).min() >= 8  # 10 in each fifth would be perfect


def test_random_is_seeded_and_without_repetition() -> None:
    chosen = select_random(100, 30, seed=3)
    assert chosen == sorted(set(chosen))
    assert chosen == select_random(100, 30, seed=3)
    assert chosen != select_random(100, 30, seed=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_k_center_equals_the_textbook(dtype: torch.dtype) -> None:
    features = torch.randn(300, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
    chosen = select_k_center(features, 25, seed=1)
    distances = torch.cdist(features.double(), features.double())
    expected = chosen[:1]
    while len(expected) < 25:
        expected.append(int(distances[:, expected].min(1).values.argmax()))
    assert chosen == expected
    assert select_k_center(features, 10, seed=1) == chosen[:10]
    assert select_k_center(features, 10, seed=2) != chosen[:10]


def test_k_center_finds_every_cluster_where_random_does_not() -> None:
    centres = torch.eye(20) * 100
    sizes = [1000] + [3] * 19
    labels = torch.repeat_interleave(torch.arange(20), torch.tensor(sizes))
    features = centres[labels] + torch.randn(len(labels), 20, generator=torch.Generator().manual_seed(0))
    assert len({int(labels[i]) for i in select_k_center(features, 20)}) == 20
    assert len({int(labels[i]) for i in select_random(len(labels), 20)}) < 10


def test_k_center_of_duplicates_does_not_repeat() -> None:
    assert sorted(select_k_center(torch.zeros(5, 3), 5)) == list(range(5))


def test_k_center_of_12000() -> None:
    assert len(set(select_k_center(torch.randn(12_000, 256), 200))) == 200


def test_wrong_arguments() -> None:
    with pytest.raises(CraftError, match=r"`count` got 4 anchors of 3 frames"):
        select_spread([0, 0, 0], [0, 0, 0], 4)
    with pytest.raises(CraftError, match=r"`tasks` got 2 and `episodes` 3"):
        select_spread([0, 0], [0, 0, 0], 1)
    with pytest.raises(CraftError, match="`count` got 0"):
        select_random(3, 0)
    with pytest.raises(CraftError, match=r"expected \[frames, dim\]"):
        select_k_center(torch.zeros(3), 1)
    with pytest.raises(CraftError, match="not finite"):
        select_k_center(torch.tensor([[0.0], [torch.nan]]), 1)
