# SPDX-License-Identifier: Apache-2.0
"""Retention of hidden states: the student's features on anchors stay near the teacher's. Taps are not here.

It protects behaviour only if nothing behind the tap moves.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lerobot_craft.anchors import AnchorBatches
from lerobot_craft.dual import Reference
from lerobot_craft.errors import CraftError
from lerobot_craft.retention._hidden_loss import HIDDEN_LOSSES, HiddenLoss, hidden_loss
from lerobot_craft.retention._prepared import PreparedBatches
from lerobot_craft.retention._preprocess import Preprocess, prepare

type Features = Callable[[dict[str, Any]], Tensor]

_TARGETS = {"hidden": "teacher_hidden", "feature": "target_features"}


class HiddenRetention:
    """The distance between the student's features and the cached ones, on the next batch of anchors.

    With `relative`, `mse` is divided by the variance of the teacher's features over the anchors and `l1` by
    their mean absolute deviation, layer by layer and vector by vector: 0 is the teacher, 1 a student that
    ignores what it sees, for every model. `cosine` has no unit and stays as it is.

    Args:
        features: The student's features of preprocessed frames, in the shape of the cached target.
        batches: Anchors.
        loss: `mse`, `cosine` or `l1`.
        relative: Whether to divide by the teacher's spread.
        preprocess: Applied to the frames first; targets never go through it.
        device: Where frames go before it; None leaves that to the preprocessor.

    Attributes:
        metrics: After a call `retention_loss`, `student_feature_norm` and `target_feature_norm`, as tensors
            on the device.

    Raises:
        CraftError: The cache has no hidden target, or the loss is unknown.
    """

    def __init__(
        self,
        features: Features,
        batches: AnchorBatches,
        *,
        loss: HiddenLoss = "mse",
        relative: bool = True,
        preprocess: Preprocess | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if loss not in HIDDEN_LOSSES:
            raise CraftError(f"`loss` got {loss!r}, expected one of {', '.join(HIDDEN_LOSSES)}.")
        names = [name for kind, name in _TARGETS.items() if kind in batches.source.kinds]
        if not names:
            raise CraftError(f"`batches` got a cache of {', '.join(batches.source.kinds)}, expected hidden or feature.")
        self._target = names[0]
        self._features = features
        self._anchors = PreparedBatches(
            batches, lambda batch: prepare(batch, preprocess, through={}, beside={}, device=device)
        )
        self._loss: HiddenLoss = loss
        spread = batches.source.statistics(self._target).scale(loss)
        self._scale = spread if relative else None
        self._reference = Reference(0.0, 1.0 if relative else float(spread.mean()))
        self.metrics: dict[str, Tensor] = {}

    def __call__(self) -> Tensor:
        """Return the loss on the next anchors, with a gradient to the student."""
        _, batch, frames = next(self._anchors)
        student = self._features(frames).float()
        # Widened behind the copy: pinned memory then goes over without the host waiting for it.
        target = batch.targets[self._target].to(student.device, non_blocking=True).float()
        if self._scale is not None:
            self._scale = self._scale.to(student.device, torch.float32)
        mask = batch.targets.get(f"{self._target}_mask")
        if mask is not None:
            target, mask = _as_long_as(student, target, mask)
        loss = hidden_loss(student, target, self._loss, mask=mask, scale=self._scale)
        self.metrics = {
            "retention_loss": loss.detach(),
            "student_feature_norm": student.detach().norm(dim=-1).mean(),
            "target_feature_norm": target.norm(dim=-1).mean(),
        }
        return loss

    def look_ahead(self) -> None:
        """Prepare the next anchors now."""
        self._anchors.look_ahead()

    def reference(self) -> Reference:
        """Return floor 0, and 1 for a relative loss or the teacher's mean spread for a raw one."""
        return self._reference

    def state_dict(self) -> dict[str, Any]:
        """Return the position among the anchors."""
        return {"batches": self._anchors.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position."""
        self._anchors.load_state_dict(state["batches"])


def _as_long_as(student: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Cut padding off the target: a cache pads to its longest instruction, the student to its batch's longest."""
    length = student.shape[2]
    if mask[:, length:].any():
        return target, mask
    return target[:, :, :length], mask[:, :length]
