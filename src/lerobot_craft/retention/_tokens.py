# SPDX-License-Identifier: Apache-2.0
"""Retention of a token policy: cross entropy on the teacher's tokens, or divergence from its top-k logits."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lerobot_craft.anchors import AnchorBatches
from lerobot_craft.errors import CraftError
from lerobot_craft.retention._own_loss import OwnLossRetention, PolicyLoss

type Logits = Callable[[dict[str, Any], int], Tensor]

IGNORED = -100
_NAMES = ("labels", "labels_mask", "topk_values", "topk_indices")


def token_mask(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return which labels count, [batch, tokens]: those of the mask, less those marked −100."""
    kept = labels != IGNORED
    return kept if mask is None else kept & mask.bool()


def token_cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean cross entropy of the teacher's tokens, in float32.

    Args:
        logits: [batch, tokens, vocabulary]; position t predicts label t.
        labels: [batch, tokens]; −100 does not count.
        mask: Which labels count, [batch, tokens].
    """
    counted = labels.long().masked_fill(~token_mask(labels, mask), IGNORED)
    total = cross_entropy(logits.float().flatten(0, 1), counted.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / (counted != IGNORED).sum().clamp_min(1)


def topk_divergence(logits: Tensor, values: Tensor, indices: Tensor, mask: Tensor) -> Tensor:
    """Return KL(teacher ‖ student) over the teacher's k largest logits, both normalised over these k.

    Args:
        logits: The student's, [batch, tokens, vocabulary].
        values: The teacher's k largest, [batch, tokens, k].
        indices: Which they are, [batch, tokens, k].
        mask: Which tokens count, [batch, tokens].
    """
    student = logits.float().gather(-1, indices.long()).log_softmax(-1)
    teacher = values.float().log_softmax(-1)
    each = (teacher.exp() * (teacher - student)).sum(-1)
    return (each * mask).sum() / mask.sum().clamp_min(1)


class TokenRetention(OwnLossRetention):
    """Cross entropy on the teacher's tokens, or divergence from its top-k logits.

    Give either the policy's own loss, which finds `labels` (and `labels_mask`) in its batch, or its logits,
    and the loss is computed here.

    Args:
        policy_loss: The student's loss on a batch with labels, see `OwnLossRetention`.
        batches: Anchors.
        logits: The student's logits [batch, tokens, vocabulary] on a batch with labels, instead.
        distill: With `logits`: use the cached top-k logits instead of the tokens.
        settings: As for `OwnLossRetention`.

    Raises:
        CraftError: Both or neither of `policy_loss` and `logits` are given, or `distill` lacks what it needs.
    """

    kind = "tokens"

    def __init__(
        self,
        policy_loss: PolicyLoss | None,
        batches: AnchorBatches,
        *,
        logits: Logits | None = None,
        distill: bool = False,
        **settings: Any,  # noqa: ANN401 - checked by OwnLossRetention
    ) -> None:
        if logits is not None and policy_loss is None:
            loss: PolicyLoss = _DistilledLoss(logits) if distill else _TokenLoss(logits)
        elif policy_loss is not None and logits is None and not distill:
            loss = policy_loss
        else:
            raise CraftError(
                f"`policy_loss` got {policy_loss}, `logits` {logits} and `distill` {distill}, expected "
                f"exactly one of `policy_loss` and `logits`, and `distill` with `logits` only."
            )
        super().__init__(loss, batches, **settings)
        if distill and "topk_values" not in batches.source.targets(batches.indices[:1].tolist()):
            raise CraftError("`distill` got a cache without `topk_values`, expected top-k logits in it.")

    def through(self, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return nothing: tokens need no normalising."""
        return {}

    def beside(self, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the labels and what belongs to them."""
        return {name: targets[name] for name in _NAMES if name in targets}


class _TokenLoss:
    def __init__(self, logits: Logits) -> None:
        self._logits = logits

    def __call__(self, data: dict[str, Any], seed: int) -> Tensor:
        logits = self._logits(data, seed)
        return token_cross_entropy(logits, *_on(logits.device, data, "labels", "labels_mask"))


class _DistilledLoss(_TokenLoss):
    def __call__(self, data: dict[str, Any], seed: int) -> Tensor:
        logits = self._logits(data, seed)
        labels, mask, values, indices = _on(logits.device, data, *_NAMES)
        return topk_divergence(logits, values, indices, token_mask(labels, mask))


def _on(device: torch.device, data: Mapping[str, Any], *names: str) -> list[Any]:
    return [None if data.get(name) is None else data[name].to(device) for name in names]
