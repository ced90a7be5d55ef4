# SPDX-License-Identifier: Apache-2.0
"""The loss sample by sample is LeRobot's own loss of the batch, and rows do not see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from lerobot_craft.policies import sample_losses, seeded
from lerobot_craft.training._one_pass import join_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Loaded

CPU = torch.device("cpu")


def test_their_weighted_mean_is_the_policys_own_loss(vla: Loaded) -> None:
    batch = dict(vla.batch)
    # An episode's end: actions that are padding weigh nothing where LeRobot leaves them out.
    batch["action_is_pad"] = torch.zeros(batch["action"].shape[:2], dtype=torch.bool)
    batch["action_is_pad"][0, 1:] = True
    with seeded(3, CPU), torch.no_grad():
        own = vla.policy.forward(dict(batch))[0]
    with seeded(3, CPU), torch.no_grad():
        found = sample_losses(vla.policy, batch)
    assert found is not None
    assert found.losses.shape == (6,)
    torch.testing.assert_close(found.mean(slice(None)), own, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("policy_type", ["act", "diffusion"])
def test_a_policy_that_tells_one_number_alone_has_none(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    assert sample_losses(loaded.policy, loaded.batch) is None


def test_one_pass_has_the_gradient_of_two(load: Callable[[str], Loaded]) -> None:
    loaded = load("pi0_fast")
    policy, weight = loaded.copy().double().train(), 3.0
    rows = {
        name: value.double() if value.is_floating_point() else value
        for name, value in loaded.batch.items()
        if isinstance(value, torch.Tensor) and value.ndim > 0
    }
    task, anchors = ({name: value[part] for name, value in rows.items()} for part in (slice(4), slice(4, 6)))
    # Anchors have labels instead of actions, and shorter ones.
    del anchors["action"]
    kept = int(anchors["action.token_mask"].sum(1).max())
    for name in ("action.tokens", "action.token_mask"):
        anchors[name] = anchors[name][:, :kept]
    (policy.forward(dict(task))[0] + weight * policy.forward(dict(anchors))[0]).backward()
    two = [parameter.grad for parameter in policy.parameters()]
    policy.zero_grad()
    joined = join_batches(task, anchors, frozenset({"action", "action_is_pad"}))
    assert joined is not None
    found = sample_losses(policy, joined)
    assert found is not None
    (found.mean(slice(4)) + weight * found.mean(slice(4, None))).backward()
    assert any(gradient is not None for gradient in two)
    for expected, parameter in zip(two, policy.parameters(), strict=True):
        if expected is None:
            assert parameter.grad is None
        else:
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)
