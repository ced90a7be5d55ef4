# SPDX-License-Identifier: Apache-2.0
"""One loaded tiny policy of each type, with a preprocessed batch."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lerobot.policies.pretrained import PreTrainedPolicy

    from lerobot_craft.testing import TinyPaths

TYPES = ("act", "diffusion", "smolvla", "pi0", "pi05", "pi0_fast")
VLAS = TYPES[2:]


@dataclass
class Loaded:
    """A tiny policy as LeRobot loads it.

    Attributes:
        policy: Shared by all tests; change a copy.
        preprocess: Its own preprocessor.
        frames: Every frame of its dataset, not preprocessed.
        batch: Six frames of both tasks, preprocessed.
    """

    policy: PreTrainedPolicy
    preprocess: Callable[[dict[str, Any]], dict[str, Any]]
    frames: dict[str, Any]
    batch: dict[str, Any]

    def copy(self) -> PreTrainedPolicy:
        return copy.deepcopy(self.policy)


@pytest.fixture(scope="session")
def load(make_tiny_once: Callable[[str], TinyPaths]) -> Callable[[str], Loaded]:
    from lerobot.configs import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    from lerobot_craft.testing import load_frames, select

    known: dict[str, Loaded] = {}

    def load_type(policy_type: str) -> Loaded:
        if policy_type not in known:
            paths = make_tiny_once(policy_type)
            config = PreTrainedConfig.from_pretrained(paths.policy)
            policy = get_policy_class(config.type).from_pretrained(paths.policy, config=config)
            preprocess, _ = make_pre_post_processors(config, pretrained_path=str(paths.policy))
            frames = load_frames(config, paths.data)
            batch = preprocess(select(frames, torch.tensor([0, 5, 12, 17, 24, 30])))
            known[policy_type] = Loaded(policy, preprocess, frames, batch)
        return known[policy_type]

    return load_type


@pytest.fixture(params=TYPES)
def loaded(request: pytest.FixtureRequest, load: Callable[[str], Loaded]) -> Loaded:
    return load(request.param)


@pytest.fixture(params=VLAS)
def vla(request: pytest.FixtureRequest, load: Callable[[str], Loaded]) -> Loaded:
    return load(request.param)
