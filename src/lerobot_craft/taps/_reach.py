# SPDX-License-Identifier: Apache-2.0
"""Which parameters a tensor depends on, read off its autograd graph. Computes no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.autograd.graph import Node


def parameters_reached(tensors: Sequence[Tensor], barrier: Sequence[Tensor] = ()) -> set[int]:
    """Return `id()` of every leaf that `tensors` depend on.

    This is reachability, not size: a parameter whose gradient happens to be zero on one batch still counts,
    so the answer does not depend on the data. Only leaves that require grad are in the graph at all.

    Args:
        tensors: Results of a forward run with grad enabled.
        barrier: Tensors of the same graph through which the search does not go.
    """
    closed: set[Node] = {t.grad_fn for t in barrier if t.grad_fn is not None}
    found: set[int] = {id(t) for t in tensors if t.grad_fn is None and t.requires_grad}
    stack = [t.grad_fn for t in tensors if t.grad_fn is not None and t.grad_fn not in closed]
    seen = set(stack) | closed
    while stack:
        node = stack.pop()
        leaf = _leaf_of(node)
        if leaf is not None:
            found.add(id(leaf))
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return found


def _leaf_of(node: Node) -> Tensor | None:
    # Only AccumulateGrad nodes hold the leaf, and torch gives them no public type to test for.
    if type(node).__name__ != "AccumulateGrad":
        return None
    leaf: Tensor = node.variable  # type: ignore[attr-defined]
    return leaf
