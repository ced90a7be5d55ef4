# SPDX-License-Identifier: Apache-2.0
"""An untrained policy that reads Meta-World states; always doing the same solves some tasks from some starts."""

from collections.abc import Sequence
from pathlib import Path

import torch


def write_state_policy(folder: Path, action: Sequence[float]) -> Path:
    """Write an ACT checkpoint that does about the given action whatever it sees; return its folder."""
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
    torch.manual_seed(0)
    policy = ACTPolicy(config)
    with torch.no_grad():
        policy.model.action_head.weight.mul_(0.1)
        policy.model.action_head.bias.copy_(torch.tensor(action))
    policy.save_pretrained(folder)
    for processor in make_pre_post_processors(config):
        processor.save_pretrained(folder)
    return folder
