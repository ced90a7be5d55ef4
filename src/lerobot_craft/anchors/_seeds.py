# SPDX-License-Identifier: Apache-2.0
"""Seeds and shuffles that depend on their arguments alone. Nothing here carries state from call to call."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def derive_seed(*parts: int | str) -> int:
    """Return a seed of 63 bits that is a function of `parts`, for `torch.manual_seed` and its like."""
    digest = hashlib.sha256("\x1f".join(repr(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def shuffled(count: int, *seed_parts: int | str) -> NDArray[np.int64]:
    """Return a permutation of `range(count)` that is a function of `seed_parts`.

    Sorting by a hash (splitmix64) instead of calling a library's shuffle keeps the order the same from one
    release of torch or numpy to the next, so that a run resumes in the order it began with.
    """
    z = np.uint64(derive_seed(*seed_parts)) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(z ^ (z >> np.uint64(31)), kind="stable").astype(np.int64)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators inside the block and put their states back afterwards.

    Policies draw noise and timesteps from the global generators, so this is the only way to make a forward
    pass a function of its inputs.
    """
    # Asked only once CUDA is in use: asking earlier would open a context on every device.
    in_use = torch.cuda.is_initialized()
    devices = list(range(torch.cuda.device_count())) if in_use else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
