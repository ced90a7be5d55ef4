# SPDX-License-Identifier: Apache-2.0
"""Several retention terms as one. It has no loss of its own."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from lerobot_craft.dual import Reference
from lerobot_craft.errors import CraftError
from lerobot_craft.retention._protocol import PreparingTerm


class ReferencedTerm(Protocol):
    """A retention term that knows its unit, reports metrics and survives a restart."""

    metrics: dict[str, Tensor]

    def __call__(self) -> Tensor:
        """Return the loss on the next anchors."""
        ...

    def reference(self) -> Reference:
        """Return the loss's floor and scale."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what survives a restart."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it back."""
        ...


class CombinedRetention:
    """A weighted sum of terms, Σ wᵢ·(Lᵢ − floorᵢ)/scaleᵢ, or Σ wᵢ·Lᵢ when not relative.

    Relative by default: a hidden distance and an action loss have no common unit otherwise.

    Args:
        terms: By name.
        weights: By the same names; None is 1 for each.
        relative: Whether each term is turned into relative drift first.

    Attributes:
        metrics: After a call `retention_loss` and each term's metrics as `name/metric`.

    Raises:
        CraftError: There are no terms, or the names differ.
    """

    def __init__(
        self,
        terms: Mapping[str, ReferencedTerm],
        weights: Mapping[str, float] | None = None,
        *,
        relative: bool = True,
    ) -> None:
        self._terms = dict(terms)
        self._weights = dict.fromkeys(terms, 1.0) if weights is None else dict(weights)
        self._relative = relative
        if not self._terms or set(self._terms) != set(self._weights):
            raise CraftError(f"`weights` got {sorted(self._weights)}, expected the terms' names {sorted(self._terms)}.")
        self.metrics: dict[str, Tensor] = {}

    def __call__(self) -> Tensor:
        """Return the weighted sum on the next anchors of each term."""
        parts: list[Tensor] = []
        self.metrics = {}
        for name, term in self._terms.items():
            floor, scale = term.reference() if self._relative else Reference(0.0, 1.0)
            parts.append(self._weights[name] * (term() - floor) / scale)
            self.metrics |= {f"{name}/{key}": value for key, value in term.metrics.items()}
        loss = torch.stack(parts).sum()
        self.metrics["retention_loss"] = loss.detach()
        return loss

    def look_ahead(self) -> None:
        """Let the terms that can prepare their next anchors."""
        for term in self._terms.values():
            if isinstance(term, PreparingTerm):
                term.look_ahead()

    def reference(self) -> Reference:
        """Return floor 0 and the sum of weights, or the weighted sums of both when not relative."""
        if self._relative:
            return Reference(0.0, sum(self._weights.values()))
        parts = [(self._weights[name], term.reference()) for name, term in self._terms.items()]
        return Reference(sum(w * part.floor for w, part in parts), sum(w * part.scale for w, part in parts))

    def state_dict(self) -> dict[str, Any]:
        """Return every term's state by name."""
        return {name: term.state_dict() for name, term in self._terms.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give every term its state back.

        Raises:
            CraftError: The state is of other terms.
        """
        if set(state) != set(self._terms):
            raise CraftError(f"`state` got the terms {sorted(state)}, expected {sorted(self._terms)}.")
        for name, term in self._terms.items():
            term.load_state_dict(state[name])
