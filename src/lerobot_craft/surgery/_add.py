# SPDX-License-Identifier: Apache-2.0
"""A retention gradient added to `.grad` as it is, in few calls. Measures no products and projects nothing."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from lerobot_craft.surgery._merge import Surgery, merge_
from lerobot_craft.surgery._products import Gradient, gradient_products


@torch.no_grad()
def add_(parameters: Sequence[Parameter], retention: list[Gradient], scale: Tensor | None = None) -> Tensor:
    """Add `retention / scale` to `.grad`, in place, leave out entries that are not finite, and empty `retention`.

    Waits for the device once, to learn whether the gradient is finite.

    Args:
        parameters: The parameters, in the order of `retention`.
        retention: The retention gradients, of which one at least is there. Read, never written, as `merge_` does.
        scale: The factor on the loss they were taken of; None is 1.

    Returns:
        Boolean tensor: whether the gradient was finite.
    """
    finite = gradient_products([None] * len(retention), retention).finite
    if finite:
        _add_dense_(parameters, retention, 1.0 if scale is None else 1.0 / float(scale))
    # What is left: all of a gradient that has to be cleaned, and whatever cannot be added in place.
    factor = torch.ones((), device=finite.device) if scale is None else scale.reciprocal()
    merge_(parameters, retention, Surgery(1.0, factor, torch.zeros_like(finite), finite))
    return finite


def _add_dense_(parameters: Sequence[Parameter], gradients: list[Gradient], factor: float) -> None:
    # One call takes one dtype; a model may mix bfloat16 and float32 parameters.
    groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for index, parameter in enumerate(parameters):
        g, r = parameter.grad, gradients[index]
        if g is None or r is None or g.is_sparse or r.is_sparse:
            continue
        own, added = groups.setdefault(r.dtype, ([], []))
        own.append(g)
        added.append(r)
        gradients[index] = None
    for own, added in groups.values():
        torch._foreach_add_(own, added, alpha=factor)
