# SPDX-License-Identifier: Apache-2.0
"""The cheap path: backpropagate `weight·loss` straight into `.grad`, so that r never exists as a whole.

Measures no products and projects nothing.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from lerobot_craft.errors import UNREACHED, RetentionError
from lerobot_craft.surgery._merge import zero_nonfinite
from lerobot_craft.surgery._products import accumulation_dtype


def backward_into_grad_(
    loss: Tensor, parameters: Sequence[Parameter], weight: Tensor, loss_scale: Tensor | None = None
) -> Tensor:
    """Add the gradient of `weight·loss` to `.grad`, leaving out entries that are not finite.

    Args:
        loss: A scalar with a graph.
        parameters: Whose `.grad` to add to; no other leaf is touched.
        weight: 0-dimensional tensor. Where it is 0 nothing but zeros is added, whatever the gradient.
        loss_scale: Factor on the loss during the backward pass, undone before the gradient is added.

    Returns:
        Boolean tensor: whether every entry was finite.

    Raises:
        RetentionError: If the graph reaches none of the parameters.
    """
    sums: list[Tensor] = []
    inverse = None if loss_scale is None else loss_scale.reciprocal()

    def clean(gradient: Tensor) -> Tensor:
        # The sum is not finite where an entry is not; an overflow of the sum alone errs on the safe side.
        total = gradient.sum(dtype=accumulation_dtype(gradient.dtype))
        # Asked of all sums at once at the end: with hundreds of small kernels the device would wait for the host.
        sums.append(total)
        kept = gradient if total.device.type == "cpu" and math.isfinite(total) else zero_nonfinite(gradient)
        return kept if inverse is None else kept * inverse.to(kept)

    seed = weight if loss_scale is None else weight * loss_scale
    handles = [parameter.register_hook(clean) for parameter in parameters]
    try:
        torch.autograd.backward(loss, seed.to(loss, copy=True), inputs=list(parameters))
    finally:
        for handle in handles:
            handle.remove()
    if not sums:
        raise RetentionError(UNREACHED)
    return torch.isfinite(torch.stack([total.to(loss.device) for total in sums])).all()
