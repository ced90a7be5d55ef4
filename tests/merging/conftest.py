# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest


@pytest.fixture
def metaworld_policy(tmp_path: Path) -> Path:
    """An untrained policy that reads Meta-World states."""
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
    folder = tmp_path / "metaworld"
    ACTPolicy(config).save_pretrained(folder)
    for processor in make_pre_post_processors(config):
        processor.save_pretrained(folder)
    return folder
