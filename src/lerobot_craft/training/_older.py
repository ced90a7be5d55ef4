# SPDX-License-Identifier: Apache-2.0
"""Anchors of the older tools as a batch of the policy: their inputs were preprocessed already; reads no file.

Such anchors hold `pixel_values`, `input_ids` and `attention_mask`, and no robot state. A policy that reads a state gets
zeros, as the older tools gave it none.
"""

from typing import Any

import torch
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE
from torch import Tensor, nn

from lerobot_craft.errors import CacheMismatchError
from lerobot_craft.policies import base_policy

PIXELS, TEXT, MASK, LABELS = "pixel_values", "input_ids", "attention_mask", "labels"
IGNORED = -100


def is_older(frames: dict[str, Any]) -> bool:
    """Whether frames are inputs of the older tools instead of a dataset's."""
    return PIXELS in frames


def older_batch(model: nn.Module, frames: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return older inputs under the names the policy reads.

    Args:
        model: The policy.
        frames: `pixel_values` [batch, 3, h, w] or [batch, cameras, 3, h, w], in [-1, 1] or [0, 1]; `input_ids` and
            `attention_mask` [batch, tokens].
        device: Where the policy is.

    Raises:
        CacheMismatchError: If there are more images than the policy has cameras.
    """
    config: Any = base_policy(model).config
    pixels = frames[PIXELS].to(device, torch.float32)
    images = pixels.unbind(1) if pixels.ndim == 5 else (pixels,)
    cameras = list(config.image_features)
    if len(images) > len(cameras):
        raise CacheMismatchError(
            f"`{PIXELS}` holds {len(images)} image(s) per anchor and the policy has {len(cameras)} camera(s): expected "
            "no more images than cameras. Build a new cache with `lerobot-craft cache`."
        )
    batch: dict[str, Any] = {
        # Only pixels centred for a vision tower are below 0; LeRobot's policies centre them by themselves.
        camera: (image + 1) / 2 if bool((image < 0).any()) else image
        for camera, image in zip(cameras, images, strict=False)
    }
    if TEXT in frames:
        batch[OBS_LANGUAGE_TOKENS] = frames[TEXT].to(device).long()
        batch[OBS_LANGUAGE_ATTENTION_MASK] = frames[MASK].to(device).bool()
    if OBS_STATE in config.input_features:
        batch[OBS_STATE] = torch.zeros(len(pixels), *config.input_features[OBS_STATE].shape, device=device)
    return batch


def left_aligned_labels(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return labels [batch, tokens] without their ignored places, those that count first, and which count."""
    counted = labels != IGNORED
    order = torch.argsort((~counted).to(torch.int8), dim=1, stable=True)
    length = int(counted.sum(1).max())
    aligned = labels.gather(1, order)[:, :length]
    mask = counted.gather(1, order)[:, :length]
    return aligned.masked_fill(~mask, 0), mask
