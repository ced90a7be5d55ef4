# SPDX-License-Identifier: Apache-2.0
"""Configs of pi0, pi05 and pi0_fast with small networks, as policy types of their own.

LeRobot fixes the sizes of these three in code. Importing this module registers `pi0_tiny`, `pi05_tiny` and
`pi0_fast_tiny`; LeRobot then finds `modeling_pi_tiny` and `processor_pi_tiny` by its naming convention.
Everything but the sizes and the local tokenizers is LeRobot's.
"""

from __future__ import annotations

from dataclasses import dataclass

from lerobot.configs import PreTrainedConfig
from lerobot.policies.pi0.configuration_pi0 import PI0Config
from lerobot.policies.pi0_fast.configuration_pi0_fast import PI0FastConfig
from lerobot.policies.pi05.configuration_pi05 import PI05Config


@dataclass
class TinySizes:
    """Sizes of a small PaliGemma. LeRobot's joint attention is written for 8 heads, so that stays.

    Attributes:
        vlm_width: Hidden size of the language model.
        expert_width: Hidden size of the action expert.
        depth: Layers of both.
        head_dim: Size of one attention head.
        vocab_size: Rows of the embedding; at least those of the tokenizer.
        vision_width: Hidden size of the vision tower.
        patch_size: Pixels per image patch and side.
        tokenizer_path: Folder of a local text tokenizer.
    """

    vlm_width: int = 48
    expert_width: int = 32
    depth: int = 4
    head_dim: int = 8
    vocab_size: int = 512
    vision_width: int = 32
    patch_size: int = 16
    tokenizer_path: str = ""


@PreTrainedConfig.register_subclass("pi0_tiny")
@dataclass
class TinyPI0Config(TinySizes, PI0Config):
    """pi0 with small networks."""


@PreTrainedConfig.register_subclass("pi05_tiny")
@dataclass
class TinyPI05Config(TinySizes, PI05Config):
    """pi05 with small networks."""


@PreTrainedConfig.register_subclass("pi0_fast_tiny")
@dataclass
class TinyPI0FastConfig(TinySizes, PI0FastConfig):
    """pi0_fast with a small network; `text_tokenizer_name` and `action_tokenizer_name` are local folders."""
