# SPDX-License-Identifier: Apache-2.0
"""Inner products of two lists of gradients, accumulated on the device; reads gradients, never changes them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# A low-precision tensor is widened piece by piece, so that no temporary outgrows 64 MiB of float32.
_CHUNK = 2**24

Gradient = Tensor | None


class GradientProducts(NamedTuple):
    """`g·r`, `‖g‖` and `‖r‖` as 0-dimensional tensors on the gradients' device."""

    dot: Tensor
    task_norm: Tensor
    retention_norm: Tensor

    @property
    def cosine(self) -> Tensor:
        """Cosine of the angle between the two gradients; 0 where one of them vanishes."""
        lengths = self.task_norm * self.retention_norm
        return torch.where(lengths > 0, self.dot / lengths, 0.0).clamp(-1.0, 1.0)

    @property
    def finite(self) -> Tensor:
        """Whether the retention gradient is free of infinities and NaNs."""
        return torch.isfinite(self.retention_norm)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which sums over values of `dtype` are taken: float32, or wider if the values are."""
    return torch.promote_types(dtype, torch.float32)


def gradient_products(task: Sequence[Gradient], retention: Sequence[Gradient]) -> GradientProducts:
    """Accumulate dot product and norms over matching parameters; a missing gradient counts as zero.

    Args:
        task: One gradient or None per parameter.
        retention: The same for the retention loss, in the same order.

    Returns:
        The products in float32, or in float64 when a gradient is float64.

    Raises:
        ValueError: If the lists differ in length or no gradient is present at all.
    """
    if len(task) != len(retention):
        raise ValueError(f"`task` has {len(task)} gradients and `retention` {len(retention)}: expected as many.")
    present = [tensor for tensor in (*task, *retention) if tensor is not None]
    if not present:
        raise ValueError("`task` and `retention` hold no gradient at all: expected at least one.")
    dtype = torch.float32
    for tensor in present:
        dtype = torch.promote_types(dtype, tensor.dtype)
    zero = torch.zeros((), dtype=dtype, device=present[0].device)
    dots = [_dot(g, r) for g, r in zip(task, retention, strict=True) if g is not None and r is not None]
    return GradientProducts(
        dot=_stack(dots, zero).sum(),
        task_norm=torch.linalg.vector_norm(_stack(_norms(task), zero)),
        retention_norm=torch.linalg.vector_norm(_stack(_norms(retention), zero)),
    )


def _stack(scalars: list[Tensor], zero: Tensor) -> Tensor:
    return torch.stack([zero, *(scalar.to(zero) for scalar in scalars)])


def _norms(gradients: Sequence[Gradient]) -> list[Tensor]:
    norms: list[Tensor] = []
    values = [_values(gradient) for gradient in gradients if gradient is not None and gradient.numel() > 0]
    # A call takes one dtype to accumulate in; a model may mix bfloat16 and float64 parameters.
    for dtype in dict.fromkeys(value.dtype for value in values):
        group = [value for value in values if value.dtype == dtype]
        norms += torch._foreach_norm(group, 2.0, dtype=accumulation_dtype(dtype))
    return norms


def _dot(task: Tensor, retention: Tensor) -> Tensor:
    if task.is_sparse or retention.is_sparse:
        return _sparse_dot(task, retention)
    wide = accumulation_dtype(torch.promote_types(task.dtype, retention.dtype))
    left, right = task.reshape(-1), retention.reshape(-1)
    if left.dtype == right.dtype == wide:
        return torch.dot(left, right)
    pieces = zip(left.split(_CHUNK), right.split(_CHUNK), strict=True)
    return torch.stack([torch.dot(a.to(wide), b.to(wide)) for a, b in pieces]).sum()


def _sparse_dot(task: Tensor, retention: Tensor) -> Tensor:
    wide = accumulation_dtype(torch.promote_types(task.dtype, retention.dtype))
    if not task.is_sparse:
        task, retention = retention, task
    rows = task.coalesce()
    if retention.is_sparse:
        product = rows.to(wide) * retention.coalesce().to(wide)
        return product.coalesce().values().sum()
    picked = retention[tuple(rows.indices())].to(wide)
    return (rows.values().to(wide) * picked).sum()


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
