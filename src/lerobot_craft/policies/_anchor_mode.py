# SPDX-License-Identifier: Apache-2.0
"""The mode in which a policy sees anchors: that of evaluation, with the memory of training. Runs no policy."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from lerobot_craft.policies._registry import adapter_for
from lerobot_craft.taps import eval_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lerobot.policies.pretrained import PreTrainedPolicy


@contextmanager
def anchor_mode(policy: PreTrainedPolicy) -> Iterator[None]:
    """Set `policy` to `eval()` inside the block, with gradient checkpointing as in training.

    Libraries recompute activations only where a layer is in training mode. Without this the anchors would keep all of
    theirs, and need more memory than the task batch they come after.
    """
    with eval_mode(policy):
        # The layers alone: what is inside them, dropout above all, stays in `eval()`.
        parts = adapter_for(policy).recomputed(policy) if torch.is_grad_enabled() else []
        for part in parts:
            part.training = True
        try:
            yield
        finally:
            for part in parts:
                part.training = False
