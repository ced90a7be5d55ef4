# SPDX-License-Identifier: Apache-2.0
"""Explicit averaging over the default process group: `autograd.grad` bypasses the DDP reducer.

Does nothing in a single process. Does not cover sharded parameters.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from lerobot_craft.errors import RetentionError


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


@torch.no_grad()
def average_(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all processes, in place.

    Every process must pass tensors of the same shapes in the same order.

    Raises:
        RetentionError: If one of them is sparse.
    """
    size = world_size()
    if size == 1:
        return
    if any(tensor.is_sparse for tensor in tensors):
        raise RetentionError(
            "A retention gradient is sparse, and sparse gradients cannot be averaged over processes: "
            "build the embedding with `sparse=False`."
        )
    pending = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for tensor, work in zip(tensors, pending, strict=True):
        if work is not None:
            work.wait()
        tensor.div_(size)
