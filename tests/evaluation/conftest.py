# SPDX-License-Identifier: Apache-2.0
"""Untrained policies that read Meta-World states; one that always does the same solves some tasks from some starts."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session")
def make_state_policy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[float]], Path]:
    """Write an ACT checkpoint that does about the given action whatever it sees."""

    def make(action: Sequence[float]) -> Path:
        from lerobot.configs.types import FeatureType, PolicyFeature
        from lerobot.policies.act.configuration_act import ACTConfig
        from lerobot.policies.act.modeling_act import ACTPolicy
        from lerobot.policies.factory import make_pre_post_processors

        config = ACTConfig(
            input_features={
                "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(39,)),
                "observation.environment_state": PolicyFeature(type=FeatureType.ENV, shape=(32,)),
            },
            output_features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(4,))},
            chunk_size=4,
            n_action_steps=4,
            dim_model=16,
            n_heads=2,
            dim_feedforward=16,
            n_encoder_layers=1,
            use_vae=False,
            device="cpu",
            push_to_hub=False,
        )
        folder = tmp_path_factory.mktemp("policy")
        torch.manual_seed(0)
        policy = ACTPolicy(config)
        with torch.no_grad():
            policy.model.action_head.weight.mul_(0.1)
            policy.model.action_head.bias.copy_(torch.tensor(action))
        policy.save_pretrained(folder)
        for processor in make_pre_post_processors(config):
            processor.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def checkpoint(make_state_policy: Callable[[Sequence[float]], Path]) -> Path:
    """Stays where it is, more or less."""
    return make_state_policy([0.0, 0.0, 0.0, 0.0])


@pytest.fixture(scope="session")
def forward_checkpoint(make_state_policy: Callable[[Sequence[float]], Path]) -> Path:
    """Moves forward to the left, and so presses the coffee machine's button from some starts."""
    return make_state_policy([-0.5, 1.0, 0.0, 0.0])
