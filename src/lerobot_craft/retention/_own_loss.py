# SPDX-License-Identifier: Apache-2.0
"""Retention by the policy's own training loss on anchors, labelled by the teacher or by the dataset.

Flow-matching and diffusion policies draw noise and timesteps inside their loss, so even the teacher scores
more than 0 on its own actions, and a different number each time. Two things follow.

*The floor.* `reference()` measures, before the first step, what the teacher scores on its own targets, and
what it scores on the targets of other anchors, which is how a policy would do that ignores the observation.

*Which noise.* A policy's loss takes one seed per batch, so noise belongs to a place in the batch. Drawn anew
at every step (the default) it covers all timesteps in the long run, and the floor holds on average only: one
step's loss scatters about it by the spread of the noise. With `AnchorBatches(cycle=R)` batches and noise come
again after `period` steps; `reference()` then knows the teacher's loss on each of these steps, and each
step's loss is reported minus that step's floor plus the mean floor. That has the same gradient and the same
mean, and at the teacher no scatter at all; the price is that an anchor meets a limited number of draws, so
that a small R leaves the vector field free between them (one fixed draw per anchor would be the extreme of
it). Use a cycle of many epochs when a controller must work with a small ε and small batches.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lerobot_craft.anchors import AnchorBatch, AnchorBatches, derive_seed, shuffled
from lerobot_craft.dual import Reference
from lerobot_craft.errors import CraftError
from lerobot_craft.retention._prepared import PreparedBatches
from lerobot_craft.retention._preprocess import Preprocess, prepare

type PolicyLoss = Callable[[dict[str, Any], int], Tensor]
# Below this share of the floor, the difference between two means is mostly their noise.
_UNREADABLE = 0.01

type Average = Callable[[Tensor], Tensor]


class OwnLossRetention(ABC):
    """The policy's own loss on the next batch of anchors. Use one of its children.

    Args:
        policy_loss: The student's training loss on a preprocessed batch, with noise and timesteps drawn from
            the seed (see `lerobot_craft.anchors.seeded`), in `eval()` mode. A scalar.
        batches: Anchors.
        preprocess: Applied to the frames and actions first, as to a task batch.
        device: Where both go before it; None leaves that to the preprocessor.
        seed: Of the noise.
        reference_batches: How many batches the reference is measured on; a cycle is measured whole.
        average: Averages a tensor over all processes, so that every rank has the same reference; None is
            one process.

    Attributes:
        metrics: After a call `retention_loss`, as a tensor on the device.

    Raises:
        CraftError: The cache does not hold what this term reads.
    """

    kind: str
    """What the cache must hold."""

    def __init__(
        self,
        policy_loss: PolicyLoss,
        batches: AnchorBatches,
        *,
        preprocess: Preprocess | None = None,
        device: torch.device | str | None = None,
        seed: int = 42,
        reference_batches: int = 64,
        average: Average | None = None,
    ) -> None:
        if self.kind not in batches.source.kinds:
            raise CraftError(f"`batches` got a cache of {', '.join(batches.source.kinds)}, expected {self.kind}.")
        self._policy_loss = policy_loss
        self._batches = batches
        self._anchors = PreparedBatches(batches, lambda batch: self._prepared(batch, batch.targets))
        self._preprocess = preprocess
        self._device = device
        self._seed = seed
        self._reference_batches = reference_batches
        self._average = average
        self._reference: Reference | None = None
        self._floors: list[float] = []
        self.metrics: dict[str, Tensor] = {}

    @abstractmethod
    def through(self, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the targets that go through the preprocessor, under the policy's names."""

    def beside(self, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the targets that are added after the preprocessor."""
        return {}

    def __call__(self) -> Tensor:
        """Return the loss on the next anchors, with a gradient to the student."""
        position, _, data = next(self._anchors)
        loss = self._loss(data, position)
        if self._floors and self._reference is not None:
            own = self._floors[position // self._batches.global_batch % len(self._floors)]
            loss = loss - own + self._reference.floor
        self.metrics = {"retention_loss": loss.detach()}
        return loss

    def next_batch(self) -> dict[str, Any]:
        """Return the next anchors, preprocessed and labelled, for a loss that is taken elsewhere."""
        return next(self._anchors).data

    def look_ahead(self) -> None:
        """Prepare the next anchors now."""
        self._anchors.look_ahead()

    def _prepared(self, batch: AnchorBatch, targets: Mapping[str, Tensor]) -> dict[str, Any]:
        through, beside = self.through(targets), self.beside(targets)
        return prepare(batch, self._preprocess, through=through, beside=beside, device=self._device)

    def _loss(self, data: dict[str, Any], position: int, *, shifted: bool = False) -> Tensor:
        period = self._batches.period
        place = position if period is None else position % (period * self._batches.global_batch)
        # The rank's own place in the order, so that no two ranks draw the same noise.
        seed = derive_seed("noise", self._seed, place + self._batches.rank * self._batches.batch_size)
        if shifted:
            data["action"] = data["action"] + _normal_like(data["action"], seed)
        loss = self._policy_loss(data, seed)
        if loss.ndim != 0:
            raise CraftError(f"`policy_loss` returned shape {tuple(loss.shape)}, expected a scalar.")
        return loss.float()

    def reference(self) -> Reference:
        """Return the teacher's floor and scale, measured at the first call, which must come before any step.

        The scale is how much more the teacher loses on targets that are not its own: those of other anchors or, where
        that is more, its own actions moved by one standard deviation in normalised units. The first says what ignoring
        the observation costs; the second keeps a unit where the teacher's actions hardly differ between anchors. A loss
        that hardly reads the actions (a diffusion policy predicting noise, before it has learned much) is measured
        against its own floor.

        Raises:
            CraftError: Steps were taken already, or the loss does not depend on what the policy sees.
        """
        if self._reference is None:
            self._reference = self._measure()
        return self._reference

    @torch.no_grad()
    def _measure(self) -> Reference:
        if self._batches.position != 0:
            raise CraftError(
                f"`reference()` was first called at anchor {self._batches.position}, expected before the "
                f"first step, while the student still is the teacher. Call it then, or load a state with it."
            )
        partner = self._partners()
        steps = self._batches.period or self._reference_batches
        own: list[Tensor] = []
        others: list[Tensor] = []
        moved: list[Tensor] = []
        for step in range(steps):
            position = step * self._batches.global_batch
            batch = self._batches.batch_at(position)
            data = self._prepared(batch, batch.targets)
            own.append(self._loss(dict(data), position))
            if step < self._reference_batches:
                strangers = self._batches.source.targets(partner[batch.indices.numpy()].tolist())
                others.append(self._loss(self._prepared(batch, strangers), position))
                if "action" in self.through(batch.targets):
                    moved.append(self._loss(dict(data), position, shifted=True))
        floors = torch.stack(own)
        floor = self._averaged(floors.mean())
        beside_own = floors[: len(others)].mean()
        scale = max(self._averaged(torch.stack(part).mean() - beside_own) for part in (others, moved) if part)
        if scale != 0.0 and scale < _UNREADABLE * floor:
            scale = floor
        if not (scale > 0.0 and np.isfinite(floor)):
            raise CraftError(
                f"the teacher's loss got {floor:g} on its own targets and {scale:+g} on top on those of "
                f"other anchors, expected a positive number. Anchors that all look alike, or a loss that "
                f"ignores them, cannot retain anything."
            )
        self._floors = floors.tolist() if self._batches.period is not None else []
        return Reference(floor, scale)

    def _averaged(self, value: Tensor) -> float:
        return float(value if self._average is None else self._average(value))

    def _partners(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Return for each anchor another one, each taken once: the next in a shuffled ring."""
        ring = self._batches.indices[shuffled(len(self._batches.indices), "partners", self._seed)]
        if len(np.unique(ring)) < 2:
            raise CraftError(f"`batches` got {len(ring)} anchor, expected at least 2 to measure a reference.")
        partner = np.zeros(len(self._batches.source), dtype=np.int64)
        partner[ring] = np.roll(ring, -1)
        return partner

    def state_dict(self) -> dict[str, Any]:
        """Return the position among the anchors and the reference, if it was measured."""
        saved = None if self._reference is None else dict(self._reference._asdict(), floors=list(self._floors))
        return {"batches": self._anchors.state_dict(), "reference": saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position, with the teacher's reference of then."""
        self._anchors.load_state_dict(state["batches"])
        saved = state["reference"]
        self._reference = None if saved is None else Reference(saved["floor"], saved["scale"])
        self._floors = [] if saved is None else list(saved["floors"])


def _normal_like(action: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(action.shape, generator=generator).to(action)


class ActionRetention(OwnLossRetention):
    """The policy's own loss on anchors whose action is what the teacher predicted. Needs no old labels."""

    kind = "action"

    def through(self, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the teacher's actions as `action`, none of it padding."""
        action = targets["teacher_action"]
        return {"action": action, "action_is_pad": torch.zeros(action.shape[:2], dtype=torch.bool)}


class ReplayRetention(OwnLossRetention):
    """The policy's own loss on anchors with the actions the dataset holds: experience replay."""

    kind = "replay"

    def through(self, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the stored actions and which of them are padding."""
        return {name: targets[name] for name in ("action", "action_is_pad") if name in targets}
