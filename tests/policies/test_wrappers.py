# SPDX-License-Identifier: Apache-2.0
"""Taps under autocast, in bfloat16, with gradient checkpointing, inside PEFT, and on unknown policies."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.policies import adapter_for, base_policy, make_tap, policy_loss, teacher_actions
from lerobot_craft.taps import resolve_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Loaded


def grads(policy: nn.Module, batch: dict[str, Any]) -> dict[str, Tensor]:
    policy.zero_grad()
    make_tap(policy, layers=(-1,)).features(batch, "tokens").square().mean().backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def test_autocast(loaded: Loaded) -> None:
    tap = make_tap(loaded.policy, layers=(-1,))
    with torch.no_grad():
        exact = tap.features(loaded.batch, "mean_masked")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = tap.features(loaded.batch, "mean_masked")
        again = tap.features(loaded.batch, "mean_masked")
        loss = policy_loss(loaded.policy, loaded.batch, seed=0)
    assert rough.dtype == loss.dtype == torch.float32
    assert rough.requires_grad
    torch.testing.assert_close(rough, again, rtol=0, atol=0)
    assert (rough - exact).norm() / exact.norm() < 0.1


@pytest.mark.parametrize("policy_type", ["pi0", "pi05", "pi0_fast"])
def test_bfloat16_weights(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    policy = loaded.copy()
    policy.model.paligemma_with_expert.to_bfloat16_for_selected_params("bfloat16")
    tap = make_tap(policy, layers=(-1,))
    hidden, _ = tap.hidden(loaded.batch)
    assert hidden[0].dtype == torch.bfloat16
    features = tap.features(loaded.batch, "mean_masked")
    assert features.dtype == torch.float32
    exact = make_tap(loaded.policy, layers=(-1,)).features(loaded.batch, "mean_masked")
    assert (features - exact).norm() / exact.norm() < 0.1
    assert grads(policy, loaded.batch)
    assert teacher_actions(policy, loaded.batch, seed=0).isfinite().all()


def test_bfloat16_vlm_of_smolvla(load: Callable[[str], Loaded]) -> None:
    loaded = load("smolvla")
    policy = loaded.copy()
    policy.model.vlm_with_expert.vlm.to(torch.bfloat16)
    features = make_tap(policy, layers=(-1,)).features(loaded.batch, "vision_mean_text_last")
    exact = make_tap(loaded.policy, layers=(-1,)).features(loaded.batch, "vision_mean_text_last")
    assert (features - exact).norm() / exact.norm() < 0.1


@pytest.mark.parametrize("policy_type", ["pi0", "pi05", "pi0_fast"])
def test_gradient_checkpointing_changes_nothing(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    plain, checkpointed = loaded.copy(), loaded.copy()
    checkpointed.model.gradient_checkpointing_enable()
    plain.train()
    checkpointed.train()
    expected, got = grads(plain, loaded.batch), grads(checkpointed, loaded.batch)
    assert expected.keys() == got.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(
    ("policy_type", "targets"),
    [
        ("act", r"model\.encoder\.layers\.\d+\.linear1"),
        ("smolvla", r".*text_model\.layers\.\d+\.self_attn\.(q|v)_proj"),
        ("pi0_fast", r".*language_model\.layers\.\d+\.self_attn\.(q|v)_proj"),
    ],
)
def test_peft(load: Callable[[str], Loaded], policy_type: str, targets: str) -> None:
    from peft import LoraConfig, get_peft_model

    loaded = load(policy_type)
    before = make_tap(loaded.policy, layers=(-1,)).features(loaded.batch, "tokens")
    wrapped = get_peft_model(loaded.copy(), LoraConfig(r=2, target_modules=targets))
    tap = make_tap(wrapped, layers=(-1,))
    assert base_policy(wrapped) is tap.policy
    # LoRA starts at zero, so the wrapped student is the teacher.
    torch.testing.assert_close(tap.features(loaded.batch, "tokens"), before)
    assert tap.describe() == make_tap(loaded.policy, layers=(-1,)).describe()
    front = tap.parameters_in_front()
    assert set(front) <= {name for name, _ in wrapped.named_parameters()}
    assert any("lora_A" in name for name in front)
    tap.features(loaded.batch, "tokens").square().mean().backward()
    with_grad = [name for name, p in wrapped.named_parameters() if p.grad is not None]
    assert with_grad
    assert all("lora_" in name for name in with_grad)
    assert policy_loss(wrapped, loaded.batch, seed=0).isfinite()


def test_distributed_data_parallel(load: Callable[[str], Loaded], tmp_path: Path) -> None:
    loaded = load("act")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(loaded.copy())
        tap = make_tap(wrapped, layers=(-1,))
        expected = make_tap(loaded.policy, layers=(-1,)).features(loaded.batch, "tokens")
        torch.testing.assert_close(tap.features(loaded.batch, "tokens"), expected)
        assert all(name.startswith("module.model.") for name in tap.parameters_behind())
        assert policy_loss(wrapped, loaded.batch, seed=0).isfinite()
    finally:
        torch.distributed.destroy_process_group()


def full_size(policy_type: str) -> PreTrainedPolicy:
    """LeRobot's own class with LeRobot's own sizes, without memory for its weights."""
    modeling = importlib.import_module(f"lerobot.policies.{policy_type}.modeling_{policy_type}")
    name = {"pi0": "PI0", "pi05": "PI05", "pi0_fast": "PI0Fast"}[policy_type]
    core, wrapper = getattr(modeling, f"{name}Pytorch"), getattr(modeling, f"{name}Policy")
    policy = wrapper.__new__(wrapper)
    nn.Module.__init__(policy)
    policy.config = PreTrainedConfig.get_choice_class(policy_type)(device="cpu")
    with torch.device("meta"):
        policy.model = core(policy.config)
    return policy


@pytest.mark.parametrize("policy_type", ["pi0", "pi05", "pi0_fast"])
def test_the_points_exist_in_the_full_size_classes(policy_type: str) -> None:
    policy = full_size(policy_type)
    layers = adapter_for(policy).layers(policy)
    assert len(layers) == 18
    for (point,) in layers:
        resolve_module(policy, point.path)
    assert make_tap(policy, layers=(-2, -1)).describe()["layers"] == [16, 17]


@PreTrainedConfig.register_subclass("craft_test_other")
@dataclass
class OtherConfig(PreTrainedConfig):
    """A policy type this package does not know."""

    observation_delta_indices = None
    action_delta_indices = [0]  # noqa: RUF012 - a property in LeRobot's own configs
    reward_delta_indices = None

    def get_optimizer_preset(self) -> None: ...

    def get_scheduler_preset(self) -> None: ...

    def validate_features(self) -> None: ...


class OtherPolicy(PreTrainedPolicy):
    """Two layers over a sequence of tokens first, with noise in its loss."""

    config_class = OtherConfig
    name = "craft_test_other"

    def __init__(self, config: OtherConfig) -> None:
        super().__init__(config)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, None]:
        tokens = batch["observation.state"].transpose(0, 1)
        actions = self.second(self.first(tokens + torch.randn(tokens.shape))).mean(0)
        return (actions[:, None] - batch["action"]).square().mean(), None

    def predict_action_chunk(self, batch: dict[str, Tensor]) -> Tensor:
        return self.second(self.first(batch["observation.state"])).mean(1, keepdim=True)

    def get_optim_params(self) -> dict[str, Any]:
        return dict(self.named_parameters())

    def reset(self) -> None: ...

    def select_action(self, batch: dict[str, Tensor]) -> Tensor:
        return self.predict_action_chunk(batch)[:, 0]


def test_any_other_policy_is_tapped_by_path() -> None:
    policy = OtherPolicy(OtherConfig(device="cpu"))
    batch = {"observation.state": torch.randn(2, 5, 4), "action": torch.zeros(2, 1, 3)}
    with pytest.raises(TapError, match=r"layers of policy type 'craft_test_other' are not known.*--tap=PATH"):
        make_tap(policy, layers=(-1,))
    tap = make_tap(policy, path="first", batch_first=False)
    state = torch.get_rng_state()
    hidden, layout = tap.hidden(batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert hidden[0].shape == (2, 5, 4)
    torch.testing.assert_close(tap.hidden(batch)[0][0], hidden[0], rtol=0, atol=0)
    assert layout.valid.all()
    assert set(tap.parameters_in_front(batch)) == {"first.weight", "first.bias"}
    assert set(tap.parameters_behind(batch)) == {"second.weight", "second.bias"}
    with pytest.raises(TapError, match="pass `batch`"):
        tap.parameters_behind()
    assert teacher_actions(policy, batch, seed=0).shape == (2, 1, 3)
    policy.config.action_delta_indices = [0, 1]
    with pytest.raises(TapError, match="predicts 1 action steps where its loss wants 2"):
        teacher_actions(policy, batch, seed=0)
