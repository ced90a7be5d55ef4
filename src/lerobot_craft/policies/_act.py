# SPDX-License-Identifier: Apache-2.0
"""ACT: the layers of its observation encoder, with the latent at zero as in inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, override

import torch
from lerobot.utils.constants import OBS_IMAGES
from torch import Tensor

from lerobot_craft.policies._base import Batch, PolicyAdapter, Trace, as_tokens
from lerobot_craft.taps import TapPoint, TokenLayout, record_segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lerobot.policies.pretrained import PreTrainedPolicy


class ActAdapter(PolicyAdapter):
    """Layers are `model.encoder.layers`; tokens are latent, state, environment state, then image cells.

    In `eval()` mode ACT skips its VAE encoder and its loss has no KL term, so the teacher's loss on its own
    actions is exactly zero, with or without `use_vae`.
    """

    policy_type = "act"

    @override
    def layers(self, policy: PreTrainedPolicy) -> list[tuple[TapPoint, ...]]:
        count = len(policy.model.encoder.layers)
        return [(TapPoint(f"model.encoder.layers.{index}"),) for index in range(count)]

    @override
    def run(self, policy: PreTrainedPolicy, batch: Batch, trace: Trace) -> None:
        model, config = policy.model, policy.config
        batch = dict(batch)
        kinds = [("latent", model.encoder_latent_input_proj)]
        if config.robot_state_feature:
            kinds.append(("state", model.encoder_robot_state_input_proj))
        if config.env_state_feature:
            kinds.append(("environment", model.encoder_env_state_input_proj))
        if config.image_features:
            batch[OBS_IMAGES] = [batch[key] for key in config.image_features]
            kinds.append(("image", model.encoder_img_feat_input_proj))
        with record_segments(kinds) as trace.segments:
            model(batch)

    @override
    def tokens(self, policy: PreTrainedPolicy, path: str, values: Sequence[Tensor], batch: Batch) -> Tensor:
        # ACT's transformers work on [tokens, batch, dim].
        sequence_first = path.startswith(("model.encoder.", "model.decoder."))
        return as_tokens(values[0], batch_first=not sequence_first)

    @override
    def layout(self, path: str, hidden: Tensor, trace: Trace) -> TokenLayout:
        total = sum(segment.length for segment in trace.segments)
        valid = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        if total != hidden.shape[1]:
            return TokenLayout(valid)
        return TokenLayout.from_segments(trace.segments, valid)

    @override
    def actions(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Tensor:
        chunk: Tensor = policy.predict_action_chunk(batch)
        return chunk
