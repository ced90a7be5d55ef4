# SPDX-License-Identifier: Apache-2.0
"""pi0_fast's own action tokens: generated, put into the form its loss reads, and decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy
    from torch import Tensor

    from lerobot_craft.policies._base import Batch

END_OF_ACTION = "|"


def bos_column(policy: PreTrainedPolicy, batch: Batch) -> tuple[Tensor, Tensor]:
    """The instruction with the BOS behind it that LeRobot's generation adds, and the mask of both."""
    tokens, mask = batch[OBS_LANGUAGE_TOKENS], batch[OBS_LANGUAGE_ATTENTION_MASK]
    bos = tokens.new_full((tokens.shape[0], 1), policy._paligemma_tokenizer.bos_token_id)
    return torch.cat([tokens, bos], dim=1), torch.cat([mask, torch.ones_like(bos, dtype=torch.bool)], dim=1)


def generate(policy: PreTrainedPolicy, batch: Batch) -> Tensor:
    """Action tokens as the policy's inference generates them, without BOS, [batch, steps]."""
    config, model = policy.config, policy.model
    images, image_masks = policy._preprocess_images(batch)
    sample = model.sample_actions_fast_kv_cache if config.use_kv_cache else model.sample_actions_fast
    generated: Tensor = sample(
        images,
        image_masks,
        batch[OBS_LANGUAGE_TOKENS],
        batch[OBS_LANGUAGE_ATTENTION_MASK],
        max_decoding_steps=config.max_decoding_steps,
        temperature=config.temperature,
    )
    return generated


def detokenized(policy: PreTrainedPolicy, batch: Batch) -> Tensor:
    """Generated tokens as actions, [batch, chunk, action_dim].

    LeRobot's `predict_action_chunk` decodes `n_action_steps` rows from coefficients of `chunk_size` rows,
    which is right only when the two are equal; here it is always `chunk_size`.
    """
    config = policy.config
    actions: Tensor = policy.detokenize_actions(
        generate(policy, batch), action_horizon=config.chunk_size, action_dim=config.action_feature.shape[0]
    )
    return actions


def generated_labels(policy: PreTrainedPolicy, batch: Batch) -> tuple[Tensor, Tensor]:
    """Generated tokens as labels: BOS, tokens up to the end mark, what LeRobot puts behind it, zeros.

    Returns:
        Tokens and their mask, both [batch, max_action_tokens].
    """
    generated = generate(policy, batch)
    tokenizer = policy._paligemma_tokenizer
    end, *tail = tokenizer.encode(END_OF_ACTION)
    length = policy.config.max_action_tokens
    tokens = generated.new_zeros((generated.shape[0], length))
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    for row, sequence in enumerate(generated.tolist()):
        if end in sequence:
            sequence = [*sequence[: sequence.index(end) + 1], *tail]
        label = [tokenizer.bos_token_id, *sequence][:length]
        tokens[row, : len(label)] = torch.tensor(label, device=tokens.device)
        mask[row, : len(label)] = True
    return tokens, mask
