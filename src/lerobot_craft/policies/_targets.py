# SPDX-License-Identifier: Apache-2.0
"""What a teacher answers on a preprocessed batch, and a policy's own loss on such answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from lerobot.utils.constants import ACTION_TOKEN_MASK, ACTION_TOKENS
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lerobot_craft.errors import TapError
from lerobot_craft.policies._anchor_mode import anchor_mode
from lerobot_craft.policies._base import Batch, SampleLosses, base_policy, policy_device
from lerobot_craft.policies._pi import LM_HEAD
from lerobot_craft.policies._random import seeded
from lerobot_craft.policies._registry import adapter_for
from lerobot_craft.policies._smolvla import SmolVLAAdapter, own_tensors
from lerobot_craft.taps import TapPoint, capture, eval_mode

if TYPE_CHECKING:
    from torch import nn

TOKEN_POLICY = "pi0_fast"  # noqa: S105 - a policy type


@dataclass(frozen=True)
class TeacherTokens:
    """A teacher's action tokens in the form its training loss reads them.

    Attributes:
        tokens: Token ids, [batch, length], starting with BOS, zeros behind the end.
        mask: True on real tokens, [batch, length].
        top_logits: The largest logits for tokens[:, 1:], [batch, length - 1, k]; None if not asked for.
        top_ids: The token ids of `top_logits`, same shape.
    """

    tokens: Tensor
    mask: Tensor
    top_logits: Tensor | None = None
    top_ids: Tensor | None = None


def teacher_actions(policy: nn.Module, batch: Batch, seed: int) -> Tensor:
    """The policy's whole action chunk in normalised units, as its training loss expects it under `action`.

    Args:
        policy: The teacher; its mode and the global random state are left as they were.
        batch: Preprocessed observations; labels in it are not read.
        seed: Of flow-matching or diffusion noise. The noise of a sample depends on its place in the batch,
            so a cache must be built with the same batches to be the same.

    Returns:
        Actions [batch, chunk, action_dim], float32.
    """
    inner, adapter = base_policy(policy), adapter_for(policy)
    with torch.no_grad(), eval_mode(inner), seeded(seed, policy_device(inner)):
        return adapter.actions(inner, dict(batch), seed).float()


def teacher_labels(policy: nn.Module, batch: Batch, seed: int) -> Batch:
    """The entries to merge into `batch` so that `policy_loss` measures distance from this teacher.

    `action` and `action_is_pad` for every type but pi0_fast, whose loss reads `action.tokens` and
    `action.token_mask`.

    Args:
        policy: The teacher.
        batch: Preprocessed observations.
        seed: As for `teacher_actions`.
    """
    inner, adapter = base_policy(policy), adapter_for(policy)
    with torch.no_grad(), eval_mode(inner), seeded(seed, policy_device(inner)):
        return adapter.labels(inner, dict(batch), seed)


def teacher_tokens(policy: nn.Module, batch: Batch, seed: int, top_k: int = 0) -> TeacherTokens:
    """The action tokens a token policy generates, with its largest logits on them when asked for.

    Args:
        policy: The teacher, a pi0_fast.
        batch: Preprocessed observations.
        seed: Of the sampling; without effect at temperature 0, LeRobot's default.
        top_k: How many logits to keep for each token.

    Raises:
        TapError: If the policy does not generate tokens.
    """
    labels = teacher_labels(policy, batch, seed)
    if ACTION_TOKENS not in labels:
        kind = adapter_for(policy).policy_type
        raise TapError(
            f"`policy` is of type {kind!r}, which has no action tokens (only {TOKEN_POLICY} does). "
            "Use `retention_mode=action`."
        )
    tokens, mask = labels[ACTION_TOKENS], labels[ACTION_TOKEN_MASK]
    if top_k == 0:
        return TeacherTokens(tokens, mask)
    with torch.no_grad():
        top = action_token_logits(policy, {**batch, **labels}).topk(top_k, dim=-1)
    return TeacherTokens(tokens, mask, top.values.float(), top.indices)


def action_token_logits(policy: nn.Module, batch: Batch) -> Tensor:
    """Logits of the labelled action tokens under teacher forcing, with grad.

    Args:
        policy: A pi0_fast.
        batch: Preprocessed, with `action.tokens` and `action.token_mask`.

    Returns:
        [batch, length - 1, vocabulary]: row i scores token i + 1.
    """
    inner = base_policy(policy)
    with eval_mode(inner), capture(inner, [TapPoint(LM_HEAD)]) as captured:
        inner.forward(dict(batch))
    return captured.values[0][:, :-1]


def sample_losses(policy: nn.Module, batch: Batch) -> SampleLosses | None:
    """The policy's own training loss on each sample, in the mode the policy is in.

    Wrappers are bypassed, except DistributedDataParallel, which averages the gradients of the passes it sees. Mixed
    precision is the caller's autocast.

    Args:
        policy: With grad as outside.
        batch: Preprocessed and labelled.

    Returns:
        None where LeRobot's class gives one number for the batch alone.
    """
    inner = base_policy(policy)
    forward = policy.forward if isinstance(policy, DistributedDataParallel) else inner.forward
    return adapter_for(inner).sample_losses(inner, dict(batch), forward)


def policy_loss(policy: nn.Module, batch: Batch, seed: int) -> Tensor:
    """The policy's own training loss, reproducible: noise and time steps come from `seed`.

    Runs in `eval()` mode, so that dropout, random crops and VAE noise do not make a teacher differ from
    itself, and puts the mode back; the global random state is untouched. In that mode ACT's loss has no KL
    term. Wrappers are bypassed: under DistributedDataParallel nothing is averaged here, and mixed precision
    is the caller's autocast.

    Args:
        policy: With grad as outside.
        batch: Preprocessed and labelled, see `teacher_labels`.
        seed: The same seed gives the same loss.

    Returns:
        A float32 scalar.
    """
    inner = base_policy(policy)
    own = own_tensors(inner, batch) if isinstance(adapter_for(inner), SmolVLAAdapter) else dict(batch)
    with anchor_mode(inner), seeded(seed, policy_device(inner)):
        loss: Tensor = inner.forward(own)[0]
    return loss.float()
