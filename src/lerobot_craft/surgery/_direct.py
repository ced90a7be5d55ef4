# SPDX-License-Identifier: Apache-2.0
"""The cheap path: backpropagate `weight·loss` straight into `.grad`, so that r never exists as a whole.

Measures no products and projects nothing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from lerobot_craft.errors import UNREACHED, RetentionError
from lerobot_craft.surgery._merge import without_nonfinite
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
    finite = torch.ones((), dtype=torch.bool, device=loss.device)
    reached = False
    inverse = None if loss_scale is None else loss_scale.reciprocal()

    def clean(gradient: Tensor) -> Tensor:
        nonlocal finite, reached
        reached = True
        # The sum is not finite where an entry is not; an overflow of the sum alone errs on the safe side.
        all_finite = torch.isfinite(gradient.sum(dtype=accumulation_dtype(gradient.dtype)))
        finite = finite & all_finite.to(finite.device)
        kept = without_nonfinite(gradient, all_finite)
        return kept if inverse is None else kept * inverse.to(kept)

    seed = weight if loss_scale is None else weight * loss_scale
    handles = [parameter.register_hook(clean) for parameter in parameters]
    try:
        torch.autograd.backward(loss, seed.to(loss, copy=True), inputs=list(parameters))
    finally:
        for handle in handles:
            handle.remove()
    if not reached:
        raise RetentionError(UNREACHED)
    return finite
