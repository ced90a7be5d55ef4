# SPDX-License-Identifier: Apache-2.0
"""Anchors under gradient checkpointing: the same gradients, and activations that are computed again, not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from lerobot_craft.policies import make_tap, policy_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.policies.conftest import Loaded
    from torch import Tensor


def _backward(policy: Any, loss: Callable[[], Tensor]) -> tuple[dict[str, Tensor], int]:
    """Return the gradients of a loss, and how often the middle of the network was computed for them."""
    layer = policy.model.paligemma_with_expert.paligemma.model.language_model.layers[1].self_attn.q_proj
    calls = []
    handle = layer.register_forward_hook(lambda *_: calls.append(1))
    policy.zero_grad()
    loss().backward()
    handle.remove()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}, len(calls)


def _compared(policy: Any, loss: Callable[[], Tensor]) -> tuple[int, int]:
    """Check that checkpointing changes no gradient; return how often the network's middle was computed."""
    plain, once = _backward(policy, loss)
    policy.model.gradient_checkpointing_enable()
    modes = [part.training for part in policy.modules()]
    saving, again = _backward(policy, loss)
    assert [part.training for part in policy.modules()] == modes
    assert plain.keys() == saving.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(saving[name], gradient, msg=lambda text, name=name: f"{name}: {text}")
    return once, again


@pytest.mark.parametrize("layers", [(-2, -1), (-2,)])
def test_hidden_states_of_pi0_fast_are_computed_again(load: Callable[[str], Loaded], layers: tuple[int, ...]) -> None:
    loaded = load("pi0_fast")
    policy = loaded.copy().train()
    tap = make_tap(policy, layers=layers)
    assert _compared(policy, lambda: tap.features(loaded.batch, "mean_image_tokens").square().mean()) == (1, 2)


@pytest.mark.parametrize("policy_type", ["pi0", "pi05", "pi0_fast"])
def test_own_loss_is_computed_again(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    policy = loaded.copy().train()
    assert _compared(policy, lambda: policy_loss(policy, loaded.batch, 0)) == (1, 2)


def test_without_gradients_nothing_is_computed_again(load: Callable[[str], Loaded]) -> None:
    loaded = load("pi0_fast")
    policy = loaded.copy().train()
    policy.model.gradient_checkpointing_enable()
    seen = []
    layer = policy.model.paligemma_with_expert.paligemma.model.language_model.layers[1]
    layer.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    with torch.no_grad():
        make_tap(policy, layers=(-2, -1)).features(loaded.batch, "vision_mean_text_last")
    assert seen == [False]
