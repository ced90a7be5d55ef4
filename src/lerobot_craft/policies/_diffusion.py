# SPDX-License-Identifier: Apache-2.0
"""Diffusion Policy: its image encoder as layers, and its U-Net by module path at one fixed noise and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, override

import torch
from lerobot.utils.constants import OBS_IMAGES, OBS_STATE
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.policies._base import (
    Batch,
    PolicyAdapter,
    Trace,
    as_tokens,
    example_labels,
    example_observation,
    policy_device,
    seeded_normal,
)
from lerobot_craft.taps import TapPoint, TokenLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lerobot.policies.pretrained import PreTrainedPolicy

ENCODER = "diffusion.rgb_encoder"
UNET = "diffusion.unet"
# The U-Net needs a noisy trajectory. Every sample gets the same one, so that a feature belongs to its
# observation alone and not to its place in a batch.
NOISE_SEED = 0


class DiffusionAdapter(PolicyAdapter):
    """Two layers, both [batch, observation steps × cameras, 2 × keypoints].

    Layer 0 holds the keypoints the backbone finds, layer 1 the encoded vector that conditions the U-Net.
    The robot state enters the conditioning as it is, with no parameter before it, so it is not among them.
    """

    policy_type = "diffusion"

    @override
    def layers(self, policy: PreTrainedPolicy) -> list[tuple[TapPoint, ...]]:
        if not policy.config.image_features:
            raise TapError(
                "This diffusion policy has no camera, hence no encoder with layers. Tap its U-Net by "
                f"`path`, for example `{UNET}.mid_modules.1`."
            )
        encoders = [ENCODER]
        if isinstance(policy.diffusion.rgb_encoder, nn.ModuleList):
            encoders = [f"{ENCODER}.{index}" for index in range(len(policy.diffusion.rgb_encoder))]
        return [tuple(TapPoint(f"{path}.{part}") for path in encoders) for part in ("pool", "relu")]

    @override
    def run(self, policy: PreTrainedPolicy, batch: Batch, trace: Trace) -> None:
        model, config = policy.diffusion, policy.config
        condition = model._prepare_global_conditioning(with_stacked_images(policy, batch))
        size = condition.shape[0]
        shape = (1, config.horizon, config.action_feature.shape[0])
        noise = seeded_normal(shape, NOISE_SEED, condition.device).expand(size, -1, -1)
        time = torch.full((size,), config.num_train_timesteps // 2, device=condition.device)
        model.unet(noise, time, global_cond=condition)

    @override
    def tokens(self, policy: PreTrainedPolicy, path: str, values: Sequence[Tensor], batch: Batch) -> Tensor:
        size = batch[OBS_STATE].shape[0]
        if not path.startswith(ENCODER):
            # The U-Net's convolutions work on [batch, channels, time].
            channels_first = path.startswith(UNET) and values[0].ndim == 3
            return values[0].transpose(1, 2) if channels_first else as_tokens(values[0], batch_first=True)
        if path.endswith(".pool"):
            values = [value.flatten(1) for value in values]
        # Encoders fold steps into the batch; a shared encoder folds the cameras in behind them too.
        parts = [as_tokens(value, batch_first=True) for value in values]
        steps = policy.config.n_obs_steps
        split = [part.reshape(size, steps, -1, part.shape[-1]) for part in parts]
        return torch.cat(split, dim=2).flatten(1, 2)

    @override
    def layout(self, path: str, hidden: Tensor, trace: Trace) -> TokenLayout:
        plain = TokenLayout.plain(hidden)
        images = tuple((index, index + 1) for index in range(hidden.shape[1]))
        return TokenLayout(plain.valid, images) if path.startswith(ENCODER) else plain

    @override
    def actions(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Tensor:
        model, config = policy.diffusion, policy.config
        condition = model._prepare_global_conditioning(with_stacked_images(policy, batch))
        shape = (condition.shape[0], config.horizon, config.action_feature.shape[0])
        noise = seeded_normal(shape, seed, policy_device(policy))
        # `predict_action_chunk` cuts the steps that are executed; the loss wants the whole horizon.
        chunk: Tensor = model.conditional_sample(condition.shape[0], global_cond=condition, noise=noise)
        return chunk

    @override
    def example_batch(self, policy: PreTrainedPolicy) -> Batch:
        steps = policy.config.n_obs_steps
        observation = {
            key: value[:, None].expand(-1, steps, *value.shape[1:])
            for key, value in example_observation(policy).items()
        }
        return observation | example_labels(policy)


def with_stacked_images(policy: PreTrainedPolicy, batch: Batch) -> Batch:
    """Add the images of all cameras as one tensor [batch, steps, cameras, channels, height, width]."""
    keys = list(policy.config.image_features)
    if not keys:
        return dict(batch)
    images = [batch[key] if batch[key].ndim == 5 else batch[key][:, None] for key in keys]
    return {**batch, OBS_IMAGES: torch.stack(images, dim=-4)}
