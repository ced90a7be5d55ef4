# SPDX-License-Identifier: Apache-2.0
"""How far the token distributions of two token policies are apart; other policies have none."""

from dataclasses import dataclass

import torch
from lerobot.utils.constants import ACTION_TOKEN_MASK
from torch import Tensor

from lerobot_craft.caching._teacher import Teacher
from lerobot_craft.drift._frames import Batch
from lerobot_craft.drift._intervals import Interval
from lerobot_craft.policies import action_token_logits, adapter_for
from lerobot_craft.policies._targets import TOKEN_POLICY


@dataclass(frozen=True)
class TokenDrift:
    """KL(teacher ‖ student) in nats per action token that the teacher says.

    Attributes:
        all: Over all frames.
        by_task: Over the frames of each instruction.
    """

    all: Interval
    by_task: dict[str, Interval]


def speaks_tokens(policy: Teacher) -> bool:
    """Return whether a policy's actions are tokens."""
    return adapter_for(policy.policy).policy_type == TOKEN_POLICY


def token_kl(teacher: Teacher, student: Teacher, batch: Batch) -> Tensor:
    """Return KL(teacher ‖ student) of each frame, mean over the tokens that the teacher said, [frames, 1].

    Args:
        teacher: The teacher.
        student: The student.
        batch: Preprocessed, with the teacher's tokens as labels (`policies.teacher_labels`).
    """
    with torch.no_grad():
        known = action_token_logits(teacher.policy, batch)
        moved = action_token_logits(student.policy, batch)
    rows = []
    # Frame by frame: a vocabulary of 257,000 in float32 is 260 MB for one frame.
    for mask, one, other in zip(batch[ACTION_TOKEN_MASK][:, 1:], known, moved, strict=True):
        log_p, log_q = one[mask].float().log_softmax(dim=-1), other[mask].float().log_softmax(dim=-1)
        rows.append((log_p.exp() * (log_p - log_q)).sum(dim=-1).mean())
    return torch.stack(rows)[:, None].cpu().double()
