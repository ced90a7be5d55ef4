# SPDX-License-Identifier: Apache-2.0
"""Anchor batches as a policy takes them, prepared when they are needed or ahead of that; it computes no loss."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lerobot_craft.anchors import AnchorBatch, AnchorBatches


class Prepared(NamedTuple):
    """A batch of anchors.

    Attributes:
        position: Where it begins in the endless order.
        batch: The anchors.
        data: What the policy takes of them.
    """

    position: int
    batch: AnchorBatch
    data: dict[str, Any]


class PreparedBatches:
    """The batches of `AnchorBatches`, each with what `prepare` makes of it.

    Args:
        batches: Anchors.
        prepare: Returns what the policy takes.
    """

    def __init__(self, batches: AnchorBatches, prepare: Callable[[AnchorBatch], dict[str, Any]]) -> None:
        self._batches = batches
        self._prepare = prepare
        self._drawn: tuple[int, AnchorBatch] | None = None
        self._data: dict[str, Any] | None = None

    def __next__(self) -> Prepared:
        position, batch = self._draw()
        data = self._prepare(batch) if self._data is None else self._data
        self._drawn = self._data = None
        return Prepared(position, batch, data)

    def look_ahead(self) -> None:
        """Prepare the next batch now.

        What goes wrong is left to the call that needs the batch, where it goes wrong again: the step that looks ahead
        is done, and must not be lost to the next one's anchors.
        """
        if self._data is None:
            with contextlib.suppress(Exception):
                self._data = self._prepare(self._draw()[1])

    def _draw(self) -> tuple[int, AnchorBatch]:
        if self._drawn is None:
            position = self._batches.position
            self._drawn = position, next(self._batches)
        return self._drawn

    def state_dict(self) -> dict[str, Any]:
        """Return the position of what was used, whatever was prepared ahead."""
        return self._batches.state_dict(unused=0 if self._drawn is None else 1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position."""
        self._batches.load_state_dict(state)
        self._drawn = self._data = None
