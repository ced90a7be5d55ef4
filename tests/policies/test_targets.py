# SPDX-License-Identifier: Apache-2.0
"""A teacher's own answers are where its own loss is lowest, and asking for them leaves no trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from lerobot_craft.errors import TapError
from lerobot_craft.policies import (
    action_token_logits,
    policy_loss,
    teacher_actions,
    teacher_labels,
    teacher_tokens,
)
from lerobot_craft.testing import add_noise_

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from .conftest import Loaded


def mean_loss(policy: nn.Module, batch: dict[str, Any], draws: int = 8) -> float:
    with torch.no_grad():
        return sum(float(policy_loss(policy, batch, seed)) for seed in range(draws)) / draws


def observation(loaded: Loaded) -> dict[str, Any]:
    return {key: value for key, value in loaded.batch.items() if not key.startswith("action")}


def test_actions_fit_the_loss(loaded: Loaded) -> None:
    actions = teacher_actions(loaded.policy, observation(loaded), seed=0)
    assert actions.shape == loaded.batch["action"].shape
    assert actions.dtype == torch.float32
    assert not actions.requires_grad
    again = teacher_actions(loaded.policy, loaded.batch, seed=0)
    torch.testing.assert_close(again, actions, rtol=0, atol=0)


@pytest.mark.parametrize("policy_type", ["diffusion", "smolvla", "pi0", "pi05"])
def test_another_seed_gives_other_actions(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    first, second = (teacher_actions(loaded.policy, loaded.batch, seed) for seed in (0, 1))
    assert (first - second).abs().max() > 1e-4


def test_the_teacher_is_the_floor_of_its_own_loss(loaded: Loaded) -> None:
    labelled = {**loaded.batch, **teacher_labels(loaded.policy, loaded.batch, seed=7)}
    floor = mean_loss(loaded.policy, labelled)
    means = []
    for scale in (0.1, 0.3):
        losses = []
        for seed in range(4):
            student = loaded.copy()
            add_noise_(student, scale, seed)
            losses.append(mean_loss(student, labelled))
        means.append(sum(losses) / len(losses))
    assert floor < means[0] < means[1], (floor, means)


def test_act_scores_zero_on_its_own_actions_though_it_has_a_vae(load: Callable[[str], Loaded]) -> None:
    loaded = load("act")
    assert loaded.policy.config.use_vae
    labelled = {**loaded.batch, **teacher_labels(loaded.policy, loaded.batch, seed=0)}
    loaded.policy.train()
    try:
        assert policy_loss(loaded.policy, labelled, seed=0).item() == 0.0
    finally:
        loaded.policy.eval()


def test_loss_is_a_reproducible_float32_scalar_with_grad(loaded: Loaded) -> None:
    losses = [policy_loss(loaded.policy, loaded.batch, seed=3) for _ in range(2)]
    assert losses[0].shape == ()
    assert losses[0].dtype == torch.float32
    assert losses[0].requires_grad
    assert losses[0].item() == losses[1].item()


def test_global_random_state_mode_and_batch_are_untouched(loaded: Loaded) -> None:
    policy = loaded.copy()
    policy.train()
    modes = [m.training for m in policy.modules()]
    tensors = {k: v.clone() for k, v in loaded.batch.items() if isinstance(v, torch.Tensor)}
    keys = list(loaded.batch)
    torch.manual_seed(123)
    state = torch.get_rng_state()
    teacher_actions(policy, loaded.batch, seed=0)
    teacher_labels(policy, loaded.batch, seed=0)
    policy_loss(policy, loaded.batch, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in policy.modules()] == modes
    assert list(loaded.batch) == keys
    for key, value in tensors.items():
        torch.testing.assert_close(loaded.batch[key], value, rtol=0, atol=0, equal_nan=True)


def test_the_seed_decides_and_the_global_state_does_not(loaded: Loaded) -> None:
    torch.manual_seed(1)
    first = policy_loss(loaded.policy, loaded.batch, seed=5).item()
    torch.manual_seed(2)
    assert policy_loss(loaded.policy, loaded.batch, seed=5).item() == first


def test_smolvla_does_not_change_an_aloha_batch(load: Callable[[str], Loaded]) -> None:
    loaded = load("smolvla")
    policy = loaded.copy()
    policy.config.adapt_to_pi_aloha = True
    flips: list[torch.Tensor] = []

    # Aloha has 14 joints and the tiny robot 4, so the two conversions are exchanged for ones that fit; what
    # is tested is that our calls hand LeRobot copies to convert in place.
    def flip(values: torch.Tensor) -> torch.Tensor:
        flips.append(values)
        return values.mul_(-1)

    policy._pi_aloha_decode_state = flip
    policy._pi_aloha_encode_actions_inv = flip
    policy._pi_aloha_encode_actions = flip
    before = {k: v.clone() for k, v in loaded.batch.items() if isinstance(v, torch.Tensor)}
    policy_loss(policy, loaded.batch, seed=0)
    teacher_actions(policy, loaded.batch, seed=0)
    assert flips
    for key in ("observation.state", "action"):
        torch.testing.assert_close(loaded.batch[key], before[key], rtol=0, atol=0)


def test_tokens_have_the_form_of_training_labels(load: Callable[[str], Loaded]) -> None:
    loaded = load("pi0_fast")
    teacher = teacher_tokens(loaded.policy, observation(loaded), seed=0)
    labels, mask = loaded.batch["action.tokens"], loaded.batch["action.token_mask"]
    assert teacher.tokens.shape == labels.shape
    assert teacher.tokens.dtype == labels.dtype
    assert teacher.mask.dtype == mask.dtype
    assert teacher.tokens[~teacher.mask].eq(0).all()
    # BOS and "Action:" open, the end mark and EOS close, as in LeRobot's own labels.
    assert torch.equal(teacher.tokens[:, :3], labels[:, :3])
    for row, length in enumerate(teacher.mask.sum(1).tolist()):
        own = int(mask[row].sum())
        assert teacher.mask[row, :length].all()
        assert torch.equal(teacher.tokens[row, length - 2 : length], labels[row, own - 2 : own])
    # The tiny teacher has learnt its data, so most of its tokens are the dataset's.
    agreement = (teacher.tokens == labels)[mask].float().mean()
    assert agreement > 0.5
    assert teacher.top_logits is None


def test_top_logits_belong_to_the_tokens(load: Callable[[str], Loaded]) -> None:
    loaded = load("pi0_fast")
    teacher = teacher_tokens(loaded.policy, loaded.batch, seed=0, top_k=5)
    assert teacher.top_logits is not None
    assert teacher.top_ids is not None
    assert teacher.top_logits.shape == teacher.top_ids.shape == (6, teacher.tokens.shape[1] - 1, 5)
    labelled = {**loaded.batch, "action.tokens": teacher.tokens, "action.token_mask": teacher.mask}
    logits = action_token_logits(loaded.policy, labelled)
    assert logits.requires_grad
    # Cross-entropy from these logits is the policy's own loss, so rows and targets are aligned.
    targets, mask = teacher.tokens[:, 1:], teacher.mask[:, 1:]
    loss = torch.nn.functional.cross_entropy(logits[mask], targets[mask])
    torch.testing.assert_close(loss, policy_loss(loaded.policy, labelled, seed=0))
    torch.testing.assert_close(logits.gather(-1, teacher.top_ids), teacher.top_logits)
    assert (teacher.top_ids[..., 0] == targets)[mask].float().mean() > 0.8


def test_pi0_fast_actions_are_decoded_over_the_whole_chunk(load: Callable[[str], Loaded]) -> None:
    loaded = load("pi0_fast")
    policy = loaded.copy()
    whole = teacher_actions(policy, loaded.batch, seed=0)
    policy.config.n_action_steps = 4
    torch.testing.assert_close(teacher_actions(policy, loaded.batch, seed=0), whole, rtol=0, atol=0)
    assert (whole - loaded.batch["action"]).abs().mean() < 0.5


def test_only_token_policies_have_tokens(load: Callable[[str], Loaded]) -> None:
    with pytest.raises(TapError, match="'act', which has no action tokens"):
        teacher_tokens(load("act").policy, load("act").batch, seed=0)
