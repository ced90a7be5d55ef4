# SPDX-License-Identifier: Apache-2.0
"""Endless shuffled batches of anchors whose position can be saved and restored. It moves nothing to devices.

The order is one endless row of anchors: epoch after epoch, each a permutation that is a function of the seed
and the epoch. A step takes the next `world_size · batch_size` of the row, and each rank its own part of them.
So no anchor comes twice in an epoch, a batch is always full, and two ranks with batches of 8 see together
what one rank with batches of 16 sees. A cache smaller than a batch repeats its anchors inside the batch.
"""

import hashlib
import math
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lerobot_craft.anchors._reader import AnchorBatch, AnchorSource, checked_indices
from lerobot_craft.anchors._seeds import shuffled
from lerobot_craft.errors import CraftError


class AnchorBatches:
    """An endless iterator over a cache.

    Args:
        source: The cache.
        batch_size: Anchors per batch and rank.
        seed: Of the order.
        rank: This process.
        world_size: How many processes share the order.
        indices: Serve these anchors only, such as the training part of a split.
        cycle: Go back to the first epoch's order after so many epochs; None never does.
        prefetch: How many batches to decode ahead on a thread; 0 uses none.
        pin_memory: Put batches that are decoded ahead into pinned memory, from where a GPU copies them while the host
            goes on.
    """

    def __init__(
        self,
        source: AnchorSource,
        batch_size: int = 16,
        *,
        seed: int = 42,
        rank: int = 0,
        world_size: int = 1,
        indices: Sequence[int] | Tensor | None = None,
        cycle: int | None = None,
        prefetch: int = 0,
        pin_memory: bool = False,
    ) -> None:
        _check(batch_size=batch_size, rank=rank, world_size=world_size, cycle=cycle, prefetch=prefetch)
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.world_size = world_size
        self.cycle = cycle
        self.rank = rank
        chosen = range(len(source)) if indices is None else indices
        self.indices = np.asarray(checked_indices(chosen, len(source)), dtype=np.int64)
        self._consumed = 0
        self._prefetch = prefetch
        self._pin_memory = pin_memory
        self._waiting: deque[Future[AnchorBatch]] = deque()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def position(self) -> int:
        """How many anchors all ranks took together. It names a place in the endless order."""
        return self._consumed

    @property
    def epoch(self) -> int:
        """How often all anchors were seen."""
        return self._consumed // len(self.indices)

    @property
    def global_batch(self) -> int:
        """How many anchors all ranks take together in one step."""
        return self.batch_size * self.world_size

    @property
    def period(self) -> int | None:
        """After how many steps the same batches come again; None without a cycle."""
        if self.cycle is None:
            return None
        row = self.cycle * len(self.indices)
        return row // math.gcd(row, self.global_batch)

    def indices_at(self, position: int) -> list[int]:
        """Return the anchors this rank gets in the batch that begins at a position of the endless order."""
        count = len(self.indices)
        first = position + self.rank * self.batch_size
        chosen: list[int] = []
        while len(chosen) < self.batch_size:
            epoch, offset = divmod(first + len(chosen), count)
            part = self._order(epoch)[offset : offset + self.batch_size - len(chosen)]
            chosen.extend(self.indices[part].tolist())
        return chosen

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return shuffled(len(self.indices), "order", self.seed, epoch if self.cycle is None else epoch % self.cycle)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnchorBatch:
        batch = self.batch_at(self._consumed) if self._prefetch == 0 else self._next_prefetched()
        self._consumed += self.global_batch
        return batch

    def batch_at(self, position: int) -> AnchorBatch:
        """Return the batch that begins at a position of the endless order, without going there."""
        return self.source.batch(self.indices_at(position))

    def _next_prefetched(self) -> AnchorBatch:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="anchor-prefetch")
        # One more than asked for, because the first of them is what this call returns.
        while len(self._waiting) <= self._prefetch:
            ahead = self._consumed + len(self._waiting) * self.global_batch
            self._waiting.append(self._executor.submit(self._ahead, ahead))
        try:
            return self._waiting.popleft().result()
        except BaseException:
            self._forget_prefetched()  # so that the next call tries this same position again
            raise

    def _ahead(self, position: int) -> AnchorBatch:
        batch = self.batch_at(position)
        return batch.pinned() if self._pin_memory else batch

    def _forget_prefetched(self) -> None:
        for future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def close(self) -> None:
        """End the thread. The position stays, and the next batch would start a new thread."""
        self._forget_prefetched()
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def state_dict(self, *, unused: int = 0) -> dict[str, Any]:
        """Return the position of what was consumed, whatever was decoded ahead; the same on every rank.

        Args:
            unused: How many of the batches taken do not count as consumed: to be given out again.
        """
        epoch, position = divmod(self._consumed - unused * self.global_batch, len(self.indices))
        return {"epoch": epoch, "position": position, "order": self._order_name()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position. Batch size and number of processes may differ from then.

        Raises:
            CraftError: The state belongs to another order: another seed, cycle or set of anchors.
        """
        if state["order"] != self._order_name():
            raise CraftError(
                f"`state` got the anchor order {state['order']}, expected {self._order_name()}. Resume with "
                f"the seed, the cycle and the anchors the run began with."
            )
        self._forget_prefetched()
        self._consumed = state["epoch"] * len(self.indices) + state["position"]

    def _order_name(self) -> str:
        digest = hashlib.sha256(self.indices.astype("<i8").tobytes()).hexdigest()[:12]
        return f"seed={self.seed} cycle={self.cycle} anchors={len(self.indices)}:{digest}"


def _check(*, batch_size: int, rank: int, world_size: int, cycle: int | None, prefetch: int) -> None:
    wrong = []
    if batch_size < 1:
        wrong.append(f"`batch_size` got {batch_size}, expected at least 1")
    if not 0 <= rank < world_size:
        wrong.append(f"`rank` got {rank}, expected at least 0 and less than `world_size` {world_size}")
    if cycle is not None and cycle < 1:
        wrong.append(f"`cycle` got {cycle}, expected at least 1, or None")
    if prefetch < 0:
        wrong.append(f"`prefetch` got {prefetch}, expected at least 0")
    if wrong:
        raise CraftError("; ".join(wrong) + ".")
