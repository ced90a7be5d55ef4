# SPDX-License-Identifier: Apache-2.0
"""pi0, pi05 and pi0_fast: the layers of PaliGemma over the prefix. The expert does not run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, override

import torch
from lerobot.policies.common.vla_utils import make_att_2d_masks, prepare_attention_masks_4d
from lerobot.utils.constants import (
    ACTION,
    ACTION_TOKEN_MASK,
    ACTION_TOKENS,
    OBS_LANGUAGE_ATTENTION_MASK,
    OBS_LANGUAGE_TOKENS,
)
from torch.nn.functional import cross_entropy
from transformers.modeling_layers import GradientCheckpointingLayer

from lerobot_craft.policies._base import (
    ACTION_IS_PAD,
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
from lerobot_craft.policies._pi0_fast_tokens import bos_column, detokenized, generated_labels
from lerobot_craft.taps import Segment, TapPoint, capture, record_segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lerobot.policies.pretrained import PreTrainedPolicy
    from torch import Tensor, nn

LM_HEAD = "model.paligemma_with_expert.paligemma.lm_head"
LANGUAGE_MODEL = "model.paligemma_with_expert.paligemma.model.language_model"


class _PaliGemmaAdapter(PolicyAdapter):
    """What the three share.

    The output of layer i is taken as the input of what follows it, because the joint forward of pi0 and pi05
    calls the parts of a layer and never the layer; so the same points hold in inference and in training.
    """

    @override
    def layers(self, policy: PreTrainedPolicy) -> list[tuple[TapPoint, ...]]:
        count = len(language_model(policy).layers)
        following = [f"{LANGUAGE_MODEL}.layers.{index}.input_layernorm" for index in range(1, count)]
        return [(TapPoint(path, "input"),) for path in [*following, f"{LANGUAGE_MODEL}.norm"]]

    @override
    def example_batch(self, policy: PreTrainedPolicy) -> Batch:
        return example_observation(policy) | example_language(policy) | example_labels(policy)

    @override
    def recomputed(self, policy: PreTrainedPolicy) -> list[nn.Module]:
        # Not the core around them: it wraps whole passes, which would then be computed again inside each other.
        if not policy.model.gradient_checkpointing_enabled:
            return []
        backbone = policy.model.paligemma_with_expert
        layers = [part for part in backbone.modules() if isinstance(part, GradientCheckpointingLayer)]
        return [backbone, *(layer for layer in layers if layer.gradient_checkpointing)]

    def token_sources(self, policy: PreTrainedPolicy) -> list[tuple[str, nn.Module]]:
        """The modules whose outputs are image and text tokens."""
        paligemma = policy.model.paligemma_with_expert.paligemma.model
        return [
            ("image", paligemma.multi_modal_projector),
            ("text", paligemma.language_model.get_input_embeddings()),
        ]


class Pi0Adapter(_PaliGemmaAdapter):
    """pi0: the prefix is images and instruction; the state goes to the expert and is not in it."""

    policy_type = "pi0"

    @override
    def run(self, policy: PreTrainedPolicy, batch: Batch, trace: Trace) -> None:
        images, image_masks = policy._preprocess_images(batch)
        with record_segments(self.token_sources(policy)) as trace.segments:
            embeddings, trace.valid, attention = policy.model.embed_prefix(
                images, image_masks, batch[OBS_LANGUAGE_TOKENS], batch[OBS_LANGUAGE_ATTENTION_MASK]
            )
        mask = prepare_attention_masks_4d(make_att_2d_masks(trace.valid, attention))
        with _eager_attention(policy):
            policy.model.paligemma_with_expert.forward(
                attention_mask=mask,
                position_ids=torch.cumsum(trace.valid, dim=1) - 1,
                past_key_values=None,
                inputs_embeds=[embeddings, None],
                use_cache=False,
            )

    @override
    def actions(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Tensor:
        config = policy.config
        shape = (batch[OBS_LANGUAGE_TOKENS].shape[0], config.chunk_size, config.max_action_dim)
        noise = seeded_normal(shape, seed, policy_device(policy))
        chunk: Tensor = policy.predict_action_chunk(batch, noise=noise)
        return chunk

    @override
    def sample_losses(self, policy: PreTrainedPolicy, batch: Batch, forward: Forward) -> SampleLosses | None:
        return flow_sample_losses(batch, forward, padding_counts=True)


class Pi05Adapter(Pi0Adapter):
    """pi05: as pi0, but the preprocessor writes the state into the instruction, so the prefix holds it."""

    policy_type = "pi05"


class Pi0FastAdapter(_PaliGemmaAdapter):
    """pi0_fast: images, instruction with state, and the BOS from which generation starts.

    In LeRobot's inference the prefix attends to that BOS, in its training it does not. Hidden states here
    are those of inference.
    """

    policy_type = "pi0_fast"
    unread = frozenset({ACTION, ACTION_IS_PAD})

    @override
    def run(self, policy: PreTrainedPolicy, batch: Batch, trace: Trace) -> None:
        images, image_masks = policy._preprocess_images(batch)
        tokens, masks = bos_column(policy, batch)
        with record_segments(self.token_sources(policy)) as segments:
            embeddings, trace.valid, attention, _, _ = policy.model.embed_prefix_fast(
                images, image_masks, tokens, masks
            )
        text = segments.pop()
        trace.segments = [*segments, Segment("text", text.length - 1), Segment("bos", 1)]
        embeddings = embeddings.to(language_model(policy).layers[0].self_attn.q_proj.weight.dtype)
        policy.model.paligemma_with_expert.forward(
            attention_mask=prepare_attention_masks_4d(attention, dtype=embeddings.dtype),
            position_ids=torch.cumsum(trace.valid, dim=1) - 1,
            past_key_values=None,
            inputs_embeds=[embeddings, None],
            use_cache=False,
            adarms_cond=[None, None],
        )

    @override
    def actions(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Tensor:
        return detokenized(policy, batch)

    @override
    def labels(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Batch:
        tokens, mask = generated_labels(policy, batch)
        return {ACTION_TOKENS: tokens, ACTION_TOKEN_MASK: mask}

    @override
    def sample_losses(self, policy: PreTrainedPolicy, batch: Batch, forward: Forward) -> SampleLosses | None:
        # Its loss is one number for the batch; the logits it comes from are seen on their way. A wrapper wants the
        # pass to end as it should.
        with capture(policy, [TapPoint(LM_HEAD)], stop=forward == policy.forward) as captured:
            forward(dict(batch))
        logits, targets = captured.values[0][:, :-1], batch[ACTION_TOKENS][:, 1:]
        counted = batch[ACTION_TOKEN_MASK][:, 1:]
        each = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        count = counted.sum(1)
        return SampleLosses((each.float() * counted).sum(1) / count.clamp_min(1), count)

    @override
    def example_batch(self, policy: PreTrainedPolicy) -> Batch:
        shape, device = (1, policy.config.max_action_tokens), policy_device(policy)
        labels = {
            ACTION_TOKENS: torch.zeros(shape, dtype=torch.long, device=device),
            ACTION_TOKEN_MASK: torch.ones(shape, dtype=torch.bool, device=device),
        }
        return super().example_batch(policy) | labels


def language_model(policy: PreTrainedPolicy) -> Any:  # noqa: ANN401 - transformers' class, which is untyped here
    """PaliGemma's language model."""
    return policy.model.paligemma_with_expert.paligemma.model.language_model


@contextmanager
def _eager_attention(policy: PreTrainedPolicy) -> Iterator[None]:
    # As LeRobot's sampling does: its float32 mask does not fit the fused kernels in bfloat16.
    config = language_model(policy).config
    before = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        yield
    finally:
        config._attn_implementation = before
