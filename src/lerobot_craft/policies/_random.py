# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are reproducible inside a block and leave the task's random stream alone."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch on the CPU and on `device` inside the block, and put both states back after it.

    Args:
        seed: The same seed gives the same numbers on the same kind of device.
        device: Where the policy is; on another accelerator nothing changes.
    """
    accelerated = device.type in ("cuda", "mps", "xpu")
    devices = [device.index or 0] if accelerated else []
    with torch.random.fork_rng(devices=devices, device_type=device.type if accelerated else "cuda"):
        torch.manual_seed(seed)
        yield
