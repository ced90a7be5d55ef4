# SPDX-License-Identifier: Apache-2.0
"""SmolVLA: the layers of its VLM over the prefix (images, instruction, state). The expert does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, override

import torch
from lerobot.policies.common.vla_utils import make_att_2d_masks
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE

from lerobot_craft.policies._base import (
    Batch,
    Forward,
    PolicyAdapter,
    SampleLosses,
    Trace,
    example_labels,
    example_language,
    example_observation,
    flow_sample_losses,
    policy_device,
    seeded_normal,
)
from lerobot_craft.taps import TapPoint, record_segments

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy
    from torch import Tensor

TEXT_MODEL = "model.vlm_with_expert.vlm.model.text_model"


class SmolVLAAdapter(PolicyAdapter):
    """Layers are those of the VLM's text model that SmolVLA keeps (`num_vlm_layers`).

    SmolVLA calls the parts of a layer and never the layer, so the output of layer i is seen as the input of
    what follows it: the first norm of layer i+1, or the final norm.
    """

    policy_type = "smolvla"

    @override
    def layers(self, policy: PreTrainedPolicy) -> list[tuple[TapPoint, ...]]:
        count = policy.model.vlm_with_expert.num_vlm_layers
        following = [f"{TEXT_MODEL}.layers.{index}.input_layernorm" for index in range(1, count)]
        return [(TapPoint(path, "input"),) for path in [*following, f"{TEXT_MODEL}.norm"]]

    @override
    def run(self, policy: PreTrainedPolicy, batch: Batch, trace: Trace) -> None:
        batch = own_tensors(policy, batch)
        model = policy.model
        vlm = model.vlm_with_expert.get_vlm_model()
        batch = policy._prepare_batch(batch)
        images, image_masks = policy.prepare_images(batch)
        kinds = [
            ("image", vlm.connector),
            ("text", vlm.text_model.get_input_embeddings()),
            ("state", model.state_proj),
        ]
        with record_segments(kinds) as trace.segments:
            embeddings, trace.valid, attention = model.embed_prefix(
                images,
                image_masks,
                batch[OBS_LANGUAGE_TOKENS],
                batch[OBS_LANGUAGE_ATTENTION_MASK],
                state=policy.prepare_state(batch),
            )
        # Only with a cache do all layers run self-attention over a prefix that has no suffix.
        model.vlm_with_expert.forward(
            attention_mask=make_att_2d_masks(trace.valid, attention),
            position_ids=torch.cumsum(trace.valid, dim=1) - 1,
            past_key_values=None,
            inputs_embeds=[embeddings, None],
            use_cache=True,
        )

    @override
    def actions(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Tensor:
        config = policy.config
        shape = (batch[OBS_STATE].shape[0], config.chunk_size, config.max_action_dim)
        noise = seeded_normal(shape, seed, policy_device(policy))
        chunk: Tensor = policy.predict_action_chunk(own_tensors(policy, batch), noise=noise)
        return chunk

    @override
    def sample_losses(self, policy: PreTrainedPolicy, batch: Batch, forward: Forward) -> SampleLosses | None:
        return flow_sample_losses(own_tensors(policy, batch), forward, padding_counts=False)

    @override
    def example_batch(self, policy: PreTrainedPolicy) -> Batch:
        return example_observation(policy) | example_language(policy) | example_labels(policy)


def own_tensors(policy: PreTrainedPolicy, batch: Batch) -> Batch:
    """Copy what SmolVLA changes in place when `adapt_to_pi_aloha` is set."""
    if not policy.config.adapt_to_pi_aloha:
        return dict(batch)
    changed = {key: batch[key].clone() for key in (OBS_STATE, "action") if key in batch}
    return {**batch, **changed}
