# SPDX-License-Identifier: Apache-2.0
"""Anchors through a preprocessor, with their targets. It has no preprocessor of its own."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lerobot_craft.anchors import AnchorBatch
from lerobot_craft.errors import CraftError

type Preprocess = Callable[[dict[str, Any]], dict[str, Any]]


def prepare(
    batch: AnchorBatch,
    preprocess: Preprocess | None,
    *,
    through: Mapping[str, Tensor],
    beside: Mapping[str, Tensor],
    device: torch.device | str | None,
) -> dict[str, Any]:
    """Return what a policy's loss takes: preprocessed frames with targets under the policy's own names.

    Preprocessors pass on the keys they know and drop the rest. Actions must go through, to be normalised as
    a task batch is, and are looked for afterwards; all other targets are kept beside it.

    Args:
        batch: Anchors.
        preprocess: The policy's preprocessor; None leaves frames as they are.
        through: Targets that go through the preprocessor.
        beside: Targets that are added after it.
        device: Where frames and targets go first; None leaves that to the preprocessor.

    Raises:
        CraftError: The preprocessor lost a target.
    """
    data: dict[str, Any] = {name: to_device(value, device) for name, value in (batch.frames | dict(through)).items()}
    if preprocess is not None:
        data = dict(preprocess(data))
    for name, value in through.items():
        kept = data.get(name)
        if not isinstance(kept, Tensor) or len(kept) != len(value):
            got = tuple(kept.shape) if isinstance(kept, Tensor) else kept
            raise CraftError(
                f"`preprocess` got `{name}` of shape {tuple(value.shape)} and returned {got}, expected "
                f"a tensor of {len(value)} rows. Without it the anchors have no target: use a preprocessor "
                f"that keeps `{name}`."
            )
    return data | {name: to_device(value, device) for name, value in beside.items()}


def to_device(value: Any, device: torch.device | str | None) -> Any:  # noqa: ANN401 - frames hold text too
    """Move a tensor, and leave anything else and everything without a device where it is."""
    return value.to(device, non_blocking=True) if isinstance(value, Tensor) and device is not None else value
