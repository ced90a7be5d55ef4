# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lerobot_craft.anchors import AnchorBatch, AnchorBatches, AnchorCache, shuffled
from lerobot_craft.anchors._reader import checked_indices
from lerobot_craft.errors import CacheError, CraftError


class Numbers:
    """An anchor source of `count` anchors with nothing in them, to test orders of any length."""

    kinds = ("feature",)

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def batch(self, indices: Sequence[int] | Tensor) -> AnchorBatch:
        return AnchorBatch({}, self.targets(indices), torch.tensor(checked_indices(indices, self._count)))

    def targets(self, indices: Sequence[int] | Tensor) -> dict[str, Tensor]:
        return {}

    def statistics(self, target: str) -> Any:
        raise NotImplementedError


def take(batches: AnchorBatches, steps: int) -> list[list[int]]:
    return [next(batches).indices.tolist() for _ in range(steps)]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_every_epoch_has_each_anchor_once(count: int, batch_size: int, seed: int) -> None:
    steps = -(-3 * count // batch_size)
    row = [i for part in take(AnchorBatches(Numbers(count), batch_size, seed=seed), steps) for i in part]
    for epoch in range(3):
        assert sorted(row[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert len(row) == steps * batch_size  # a batch is always full


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 12), st.integers(0, 2))
@settings(deadline=None, max_examples=60)
def test_resuming_gives_the_same_order(count: int, batch_size: int, before: int, prefetch: int) -> None:
    whole = AnchorBatches(Numbers(count), batch_size)
    with AnchorBatches(Numbers(count), batch_size, prefetch=prefetch) as first:
        assert take(first, before) == take(whole, before)
        state = first.state_dict()
    with AnchorBatches(Numbers(count), batch_size, prefetch=prefetch) as second:
        take(second, 2)  # whatever it did before
        second.load_state_dict(state)
        assert take(second, 8) == take(whole, 8)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_ranks_share_one_order(count: int, batch_size: int, world_size: int) -> None:
    alone = AnchorBatches(Numbers(count), batch_size * world_size)
    ranks = [AnchorBatches(Numbers(count), batch_size, rank=rank, world_size=world_size) for rank in range(world_size)]
    for _ in range(7):
        parts = [next(rank).indices.tolist() for rank in ranks]
        assert [i for part in parts for i in part] == next(alone).indices.tolist()
        assert len({str(rank.state_dict()) for rank in ranks} | {str(alone.state_dict())}) == 1


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_a_cycle_comes_again_after_its_period(count: int, batch_size: int, cycle: int) -> None:
    batches = AnchorBatches(Numbers(count), batch_size, cycle=cycle)
    assert batches.period is not None
    first, second = take(batches, batches.period), take(batches, batches.period)
    assert first == second
    assert AnchorBatches(Numbers(count), batch_size).period is None


def test_epochs_and_seeds_differ() -> None:
    batches = AnchorBatches(Numbers(50), 50, seed=1)
    first, second = take(batches, 2)
    assert first != second
    assert batches.epoch == 2
    assert take(AnchorBatches(Numbers(50), 50, seed=2), 1)[0] != first


def test_the_shuffle_is_pinned() -> None:
    # A run that resumes under a newer numpy or torch must meet the order it began with.
    assert shuffled(10, "order", 42, 0).tolist() == [4, 2, 7, 9, 8, 1, 0, 3, 5, 6]


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_the_shuffle_is_uniform(count: int) -> None:
    trials = 2000
    first = torch.tensor([int(shuffled(count, "u", trial)[0]) for trial in range(trials)])
    expected = trials / count
    chi_square = ((torch.bincount(first, minlength=count) - expected) ** 2 / expected).sum()
    assert chi_square < count - 1 + 5 * (2 * (count - 1)) ** 0.5


def test_a_subset_of_anchors(cache: AnchorCache) -> None:
    split = cache.split(0.3)
    seen = [i for part in take(AnchorBatches(cache, 8, indices=split.train), 2) for i in part]
    assert sorted(seen) == split.train.tolist()


def test_a_state_of_another_order_is_refused() -> None:
    state = AnchorBatches(Numbers(9), 4, seed=1).state_dict()
    for other in (
        AnchorBatches(Numbers(9), 4, seed=2),
        AnchorBatches(Numbers(10), 4, seed=1),
        AnchorBatches(Numbers(10), 4, seed=1, indices=range(1, 10)),
        AnchorBatches(Numbers(9), 4, seed=1, cycle=1),
    ):
        with pytest.raises(CraftError, match="Resume with the seed"):
            other.load_state_dict(state)
    AnchorBatches(Numbers(9), 2, seed=1, world_size=3).load_state_dict(state)


def test_wrong_arguments_are_reported_together() -> None:
    with pytest.raises(CraftError, match=r"`batch_size` got 0.*`rank` got 2.*`cycle` got 0.*`prefetch` got -1"):
        AnchorBatches(Numbers(3), 0, rank=2, world_size=2, cycle=0, prefetch=-1)


def test_prefetching_gives_the_same_tensors_and_reports_what_was_consumed(cache: AnchorCache) -> None:
    plain = AnchorBatches(cache, 6)
    with AnchorBatches(cache, 6, prefetch=3) as ahead:
        for _ in range(9):
            one, other = next(plain), next(ahead)
            assert torch.equal(one.indices, other.indices)
            assert torch.equal(one.frames["observation.images.top"], other.frames["observation.images.top"])
            assert ahead.state_dict() == plain.state_dict()


def test_an_error_while_prefetching_reaches_the_caller_and_the_position_stays(cache: AnchorCache) -> None:
    shard = cache.directory / "shard_00002.safetensors"
    data = shard.read_bytes()
    with AnchorBatches(cache, 23, prefetch=2) as batches:
        shard.write_bytes(data[:-1] + b"\0" if data[-1] else data[:-1] + b"\1")
        for _ in range(2):
            with pytest.raises(CacheError, match="damaged"):
                next(batches)
            assert batches.position == 0
        shard.write_bytes(data)
        assert next(batches).indices.tolist() == take(AnchorBatches(cache, 23), 1)[0]


def test_closing_ends_the_thread(cache: AnchorCache) -> None:
    before = threading.active_count()
    batches = AnchorBatches(cache, 4, prefetch=2)
    expected = take(AnchorBatches(cache, 4), 2)
    assert take(batches, 1) == expected[:1]
    assert threading.active_count() == before + 1
    batches.close()
    assert threading.active_count() == before
    assert take(batches, 1) == expected[1:]  # it may go on
    batches.close()


def test_a_cache_smaller_than_a_batch(synthetic: Any, tmp_path: Path) -> None:
    cache = synthetic.build(tmp_path, synthetic.plan(3))
    batch = next(AnchorBatches(cache, 16))
    assert len(batch.indices) == 16
    assert torch.bincount(batch.indices).tolist() in ([5, 5, 6], [5, 6, 5], [6, 5, 5])
