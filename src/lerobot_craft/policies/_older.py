# SPDX-License-Identifier: Apache-2.0
"""Frames of the older tools' caches as a batch of the policy; they were tokenized and resized when written."""

from collections.abc import Callable
from typing import Any

import torch
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor, nn

from lerobot_craft.errors import UsageError
from lerobot_craft.policies._base import Batch, base_policy, policy_device
from lerobot_craft.policies._registry import adapter_for

PIXELS, TOKENS, MASK = "pixel_values", "input_ids", "attention_mask"
# The types that read images and text and nothing else; a state, where there is one, is in the text.
_TYPES = ("pi0_fast", "pi05")


def older_preprocess(policy: nn.Module) -> Callable[[dict[str, Any]], Batch]:
    """Return what takes the place of a preprocessor for frames with `pixel_values`, `input_ids`, `attention_mask`.

    Pixels of one camera are [batch, 3, height, width], of several [batch, cameras, 3, height, width], in the order of
    the policy's cameras. Pixels below 0 tell that they were scaled to [-1, 1]; the policy wants [0, 1].

    Args:
        policy: The student, as it is or wrapped.

    Raises:
        UsageError: If this type of policy reads more than such frames hold.
    """
    inner, kind = base_policy(policy), adapter_for(policy).policy_type
    if kind not in _TYPES:
        raise UsageError(
            f"The anchor cache is of an older format, which holds images and text only, and a policy of type `{kind}` "
            f"reads more (older caches serve {', '.join(_TYPES)}): build a new one with `lerobot-craft cache`."
        )
    cameras = list(inner.config.image_features)

    def prepare(frames: dict[str, Any]) -> Batch:
        device = policy_device(inner)
        images = _cameras(frames[PIXELS].to(device).float())
        if len(images) > len(cameras):
            raise UsageError(
                f"The older anchor cache holds {len(images)} cameras, and the policy has {len(cameras)} "
                f"({', '.join(cameras)}): build a new one with `lerobot-craft cache`."
            )
        batch: Batch = dict(zip(cameras, images, strict=False))
        batch[OBS_LANGUAGE_TOKENS] = frames[TOKENS].to(device)
        batch[OBS_LANGUAGE_ATTENTION_MASK] = frames[MASK].to(device).bool()
        return batch

    return prepare


def _cameras(pixels: Tensor) -> list[Tensor]:
    if bool((pixels < 0).any()):
        pixels = (pixels + 1.0) / 2.0
    return [pixels] if pixels.ndim == 4 else list(torch.unbind(pixels, dim=1))
