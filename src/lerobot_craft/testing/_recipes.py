# SPDX-License-Identifier: Apache-2.0
"""The config of each tiny checkpoint, and how long it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig

from lerobot_craft.testing import _resnet
from lerobot_craft.testing._dataset import ACTION_DIM, CAMERAS, IMAGE_SIZE, STATE_DIM
from lerobot_craft.testing._tokenizers import make_smolvlm, make_text_tokenizer
from lerobot_craft.testing.configuration_pi_tiny import TinyPI0Config, TinyPI0FastConfig, TinyPI05Config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK = 8
VLA_IMAGE_SIZE = 32
VLM_WIDTH = 64
VLM_LAYERS = 4
ACTION_VOCAB = 160


@dataclass(frozen=True)
class Recipe:
    """How one tiny policy is made.

    Attributes:
        config: Writes what the policy needs beside its weights and returns its config.
        steps: Training steps. Enough that the policy prefers its own actions to others, no more.
        learning_rate: Of Adam.
    """

    config: Callable[[Path], Any]
    steps: int
    learning_rate: float


def _common() -> dict[str, Any]:
    camera = PolicyFeature(FeatureType.VISUAL, (3, IMAGE_SIZE, IMAGE_SIZE))
    state = PolicyFeature(FeatureType.STATE, (STATE_DIM,))
    return {
        "input_features": {"observation.state": state, **dict.fromkeys(CAMERAS, camera)},
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
        "device": "cpu",
        "push_to_hub": False,
    }


def _act(_: Path) -> ACTConfig:
    return ACTConfig(
        **_common(),
        chunk_size=CHUNK,
        n_action_steps=CHUNK,
        vision_backbone=_resnet.NAME,
        pretrained_backbone_weights=None,
        dim_model=32,
        n_heads=4,
        dim_feedforward=64,
        n_encoder_layers=3,
        n_decoder_layers=1,
        n_vae_encoder_layers=1,
        latent_dim=8,
    )


def _diffusion(_: Path) -> DiffusionConfig:
    return DiffusionConfig(
        **_common(),
        horizon=CHUNK,
        n_action_steps=4,
        drop_n_last_frames=3,
        vision_backbone=_resnet.NAME,
        pretrained_backbone_weights=None,
        use_group_norm=False,
        spatial_softmax_num_keypoints=8,
        down_dims=(32, 64),
        diffusion_step_embed_dim=16,
        num_train_timesteps=20,
    )


def _smolvla(directory: Path) -> SmolVLAConfig:
    make_smolvlm(directory / "vlm", VLM_WIDTH, VLM_LAYERS)
    return SmolVLAConfig(
        **_common(),
        **_vla(),
        vlm_model_name=str(directory / "vlm"),
        resize_imgs_with_padding=(VLA_IMAGE_SIZE, VLA_IMAGE_SIZE),
        num_vlm_layers=VLM_LAYERS,
        tokenizer_max_length=16,
        expert_width_multiplier=0.5,
        num_steps=5,
        train_expert_only=False,
        freeze_vision_encoder=False,
    )


def _vla() -> dict[str, Any]:
    return {"chunk_size": CHUNK, "n_action_steps": CHUNK, "max_state_dim": 8, "max_action_dim": 8}


def _pi(directory: Path) -> dict[str, Any]:
    tokenizer = directory / "tokenizer"
    make_text_tokenizer(tokenizer)
    return {
        **_common(),
        **_vla(),
        "image_resolution": (VLA_IMAGE_SIZE, VLA_IMAGE_SIZE),
        "tokenizer_path": str(tokenizer),
    }


def _pi0(directory: Path) -> TinyPI0Config:
    return TinyPI0Config(**_pi(directory), tokenizer_max_length=16, num_inference_steps=5)


def _pi05(directory: Path) -> TinyPI05Config:
    return TinyPI05Config(**_pi(directory), tokenizer_max_length=32, num_inference_steps=5)


def _pi0_fast(directory: Path) -> TinyPI0FastConfig:
    settings = _pi(directory)
    return TinyPI0FastConfig(
        **settings,
        tokenizer_max_length=32,
        text_tokenizer_name=settings["tokenizer_path"],
        action_tokenizer_name=str(directory / "action_tokenizer"),
        max_action_tokens=40,
        max_decoding_steps=40,
        fast_skip_tokens=8,
        # A policy this small does not always open with "Action:"; LeRobot would stop with an assertion.
        validate_action_token_prefix=False,
    )


RECIPES: dict[str, Recipe] = {
    "act": Recipe(_act, steps=100, learning_rate=2e-3),
    "diffusion": Recipe(_diffusion, steps=120, learning_rate=5e-3),
    "smolvla": Recipe(_smolvla, steps=150, learning_rate=5e-3),
    "pi0": Recipe(_pi0, steps=150, learning_rate=6e-3),
    "pi05": Recipe(_pi05, steps=150, learning_rate=1e-2),
    "pi0_fast": Recipe(_pi0_fast, steps=150, learning_rate=6e-3),
}
