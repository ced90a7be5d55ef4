# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of a teacher and of its processors. It tells two apart; it does not say how they differ."""

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from lerobot_craft.errors import CraftError

type Json = bool | int | float | str | list[Json] | tuple[Json, ...] | dict[str, Json] | None

_CHUNK_BYTES = 1 << 24


def canonical_json(value: Json) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, no NaN.

    Raises:
        CraftError: `value` holds something JSON has no form for.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CraftError(
            f"`value` got something that is not JSON ({error}), expected numbers, text, lists and mappings."
        ) from error


def fingerprint(tensors: Mapping[str, Tensor], config: Json = None) -> str:
    """Return a fingerprint of named tensors and their configuration.

    Serves for a model (`model.state_dict()` and its config) and for a processor (its statistics and its
    steps). The order of the names does not matter; dtype and shape do. A tensor is read in pieces of 16 MiB,
    so that neither a copy of a large model nor of a large layer is made.

    Args:
        tensors: Names and tensors, on any device.
        config: Anything JSON-able that changes what the tensors mean.
    """
    digest = hashlib.sha256()
    digest.update(canonical_json(config).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.reshape(-1)
        step = max(1, _CHUNK_BYTES // tensor.element_size())
        for start in range(0, flat.numel(), step):
            # A buffer goes in without a copy: hashlib reads numpy memory directly.
            digest.update(flat[start : start + step].cpu().contiguous().view(torch.uint8).numpy())
    return f"sha256:{digest.hexdigest()}"
