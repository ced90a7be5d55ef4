# SPDX-License-Identifier: Apache-2.0
"""Projection and merge as one pass `.grad ← a·.grad + b·r`; measures nothing and decides nothing about λ."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from lerobot_craft.surgery._products import Gradient, GradientProducts, accumulation_dtype

# A gradient is merged piece by piece, so that no temporary outgrows 64 MiB of float32.
_PIECE = 2**24


class MergeMode(StrEnum):
    """How the (projected) task gradient g and the retention gradient r become one.

    `weighted` is g + λr, `equal` is (g + r)/2 and `task_priority` is g + min(λ, 1)·r.
    """

    WEIGHTED = "weighted"
    EQUAL = "equal"
    TASK_PRIORITY = "task_priority"


class Projection(StrEnum):
    """When a conflicting task gradient loses its component along the retention gradient."""

    OFF = "off"
    ALWAYS = "always"
    VIOLATED = "violated"


class Surgery(NamedTuple):
    """The coefficients of one merge: `.grad ← task_weight·.grad + retention_weight·r`."""

    task_weight: float
    retention_weight: Tensor
    bounded: Tensor
    finite: Tensor


def conflicts(products: GradientProducts, threshold: float) -> Tensor:
    """Tell whether the cosine between the gradients lies below `threshold`, as a boolean tensor."""
    return products.cosine < threshold


def retention_weight(multiplier: Tensor, mode: MergeMode) -> Tensor:
    """Return the weight that `mode` gives the retention gradient at this λ, before projection."""
    match mode:
        case MergeMode.WEIGHTED:
            return multiplier
        case MergeMode.TASK_PRIORITY:
            return multiplier.clamp(max=1.0)
        case MergeMode.EQUAL:
            return torch.full_like(multiplier, 0.5)


def weigh(
    products: GradientProducts,
    multiplier: Tensor,
    *,
    mode: MergeMode,
    project: Tensor,
    max_ratio: float | None = None,
    frequency_scale: float = 1.0,
) -> Surgery:
    """Turn products and λ into the two coefficients of the merge.

    Projection takes `(g·r/‖r‖²)·r` off the task gradient, so it only moves the coefficient of r: neither
    gradient is copied. A non-finite retention gradient gets the coefficient 0.

    Args:
        products: What `gradient_products` measured.
        multiplier: λ, a 0-dimensional tensor.
        mode: The merge mode.
        project: Boolean tensor: whether the task gradient is projected in this step.
        max_ratio: Upper bound c of the retention step relative to the task step, `‖w·r‖ ≤ c·‖g‖`, where w is
            the weight that `mode` gives r. The projection itself only shortens g and is not bounded.
        frequency_scale: Factor on r's weight for retention that runs every K steps only.

    Returns:
        The coefficients, on the device; `bounded` says whether `max_ratio` took effect.
    """
    task_weight = 0.5 if mode is MergeMode.EQUAL else 1.0
    weight = retention_weight(multiplier.to(products.dot), mode) * frequency_scale
    bounded = torch.zeros_like(project)
    if max_ratio is not None:
        room = max_ratio * products.task_norm
        bounded = weight * products.retention_norm > room
        weight = torch.where(bounded, room / products.retention_norm, weight)
    # Divided twice: the square of a small norm would underflow before its quotient does.
    along = products.dot / products.retention_norm / products.retention_norm
    along = torch.where(project & torch.isfinite(along), along, 0.0)
    weight = torch.where(products.finite, weight - task_weight * along, 0.0)
    return Surgery(task_weight, weight, bounded, products.finite)


@torch.no_grad()
def merge_(parameters: Sequence[Parameter], retention: list[Gradient], surgery: Surgery) -> None:
    """Write the merged gradient into `.grad`, in place, and empty `retention` on the way.

    The arithmetic of a bfloat16 or float16 gradient is done in float32 and rounded once. A parameter without
    task gradient gets the weighted retention gradient, one without retention gradient keeps its own.

    Retention gradients are read, never written: autograd may hand the same memory out for two parameters.

    Args:
        parameters: The parameters, in the order of `retention`.
        retention: The retention gradients. Each entry is set to None once used, so that its memory is free at once.
        surgery: The coefficients.
    """
    for index, parameter in enumerate(parameters):
        g, r = parameter.grad, retention[index]
        if g is not None and surgery.task_weight != 1.0:
            g.mul_(surgery.task_weight)
        if r is None:
            continue
        retention[index] = None
        # Of shape [1], not [], on purpose: a 0-dimensional factor would be rounded to bfloat16 first.
        weight = surgery.retention_weight.to(r.device, accumulation_dtype(r.dtype)).reshape(1)
        if g is None:
            parameter.grad = _scaled(r, weight, surgery.finite)
        elif g.is_sparse or r.is_sparse:
            scaled = _scaled(r, weight, surgery.finite)
            # Dense + sparse is defined, sparse + dense is not.
            parameter.grad = scaled + g if g.is_sparse and not r.is_sparse else g + scaled
        else:
            _add_(g, r, weight, surgery.finite)


def without_nonfinite(values: Tensor, finite: Tensor) -> Tensor:
    """Return `values` with 0 for every infinity and NaN.

    A coefficient of 0 would not drop them, since 0·NaN is NaN. Where reading `finite` waits for nothing (on a CPU), it
    decides whether there is anything to do; elsewhere the values are cleaned unseen.
    """
    if finite.device.type == "cpu" and finite:
        return values
    return zero_nonfinite(values)


def zero_nonfinite(values: Tensor) -> Tensor:
    """Return a copy of `values` with 0 for every infinity and NaN."""
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _add_(g: Tensor, r: Tensor, weight: Tensor, finite: Tensor) -> None:
    if not (g.is_contiguous() and r.is_contiguous()):
        g.addcmul_(without_nonfinite(r, finite), weight)
        return
    for g_piece, r_piece in zip(g.view(-1).split(_PIECE), r.view(-1).split(_PIECE), strict=True):
        g_piece.addcmul_(without_nonfinite(r_piece, finite), weight)


def _scaled(r: Tensor, weight: Tensor, finite: Tensor) -> Tensor:
    if not r.is_sparse:
        return (without_nonfinite(r, finite) * weight).to(r.dtype).view_as(r)
    scaled = r.coalesce().clone()
    values = scaled.values()
    values.copy_(without_nonfinite(values, finite) * weight)
    return scaled
