# SPDX-License-Identifier: Apache-2.0
import torch

from lerobot_craft.drift._intervals import bootstrap


def test_the_interval_is_over_episodes_not_frames() -> None:
    # Ten episodes that differ, each of a hundred equal frames: a thousand frames hold ten observations.
    levels = torch.randn(10, generator=torch.Generator().manual_seed(0)).double()
    values = levels.repeat_interleave(100)[:, None]
    by_episode = bootstrap(values, torch.arange(10).repeat_interleave(100).tolist(), 0)[0]
    by_frame = bootstrap(values, list(range(1000)), 0)[0]
    assert by_episode.mean == by_frame.mean
    expected = 2 * 1.96 * float(levels.std(correction=0)) / 10**0.5
    assert abs((by_episode.high - by_episode.low) / expected - 1) < 0.15
    assert by_frame.high - by_frame.low < (by_episode.high - by_episode.low) / 5


def test_columns_are_apart_and_equal_values_have_no_interval() -> None:
    values = torch.stack([torch.zeros(6), torch.full((6,), 0.1)], dim=1)
    nought, tenth = bootstrap(values, [0, 0, 1, 1, 2, 2], 0)
    assert (nought.mean, nought.low, nought.high) == (0.0, 0.0, 0.0)
    assert tenth.low <= tenth.mean <= tenth.high
    assert tenth.high - tenth.low < 1e-12


def test_one_episode() -> None:
    only = bootstrap(torch.tensor([[1.0], [3.0]]), [7, 7], 0)[0]
    assert (only.mean, only.low, only.high) == (2.0, 2.0, 2.0)
