# SPDX-License-Identifier: Apache-2.0
"""Distances between two sets of hidden vectors, in float32. It neither runs a model nor reads a cache."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lerobot_craft.errors import CraftError

type HiddenLoss = Literal["mse", "cosine", "l1"]
HIDDEN_LOSSES: tuple[str, ...] = get_args(HiddenLoss.__value__)


def hidden_loss(
    student: Tensor,
    target: Tensor,
    loss: HiddenLoss = "mse",
    *,
    mask: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Return the mean distance between student and target vectors.

    `mse` and `l1` average over the hidden size, `cosine` is 1 − cos in [0, 2]. It is computed as
    ½‖s/‖s‖ − t/‖t‖‖², which is the same number without the cancellation that makes 1 − cos of equal vectors
    come out below zero.

    Args:
        student: [batch, dim], [batch, layers, vectors, dim] or [batch, layers, tokens, dim], any dtype.
        target: The same shape.
        loss: Which distance.
        mask: Which tokens count, [batch, tokens]; with [batch, layers, tokens, dim] only.
        scale: What each layer's (and vector's) mean is divided by before they are averaged: [], [layers] or
            [layers, vectors]. So a layer of large values counts no more than one of small values.

    Raises:
        CraftError: The shapes differ, or the loss is unknown.
    """
    if student.shape != target.shape:
        raise CraftError(
            f"student features got shape {tuple(student.shape)}, expected {tuple(target.shape)} as in the "
            f"cache: the same tap, layers, pooling and padding as when it was built."
        )
    each = _distances(student.float(), target.float(), loss)
    unit = torch.ones((), device=each.device) if scale is None else scale.to(each.device, torch.float32)
    # The dimensions of `scale` are the leading ones after the batch; all others are averaged away.
    averaged = [0, *range(1 + unit.ndim, each.ndim)]
    if mask is None:
        means = each.mean(averaged)
    else:
        weight = mask.to(each.device, torch.float32)[:, None, :].expand_as(each)
        means = (each * weight).sum(averaged) / weight.sum(averaged).clamp_min(1.0)
    return (means / unit).mean()


def _distances(student: Tensor, target: Tensor, loss: str) -> Tensor:
    if loss == "mse":
        return (student - target).square().mean(-1)
    if loss == "l1":
        return (student - target).abs().mean(-1)
    if loss == "cosine":
        return (normalize(student, dim=-1) - normalize(target, dim=-1)).square().sum(-1) / 2
    raise CraftError(f"`loss` got {loss!r}, expected one of {', '.join(HIDDEN_LOSSES)}.")
