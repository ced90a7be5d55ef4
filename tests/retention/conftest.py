# SPDX-License-Identifier: Apache-2.0
"""Small caches and small policies for the retention terms' tests."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lerobot_craft.anchors import AnchorCache, CachePlan, build_cache, random_access, seeded

torch.set_num_threads(1)

STATE, ACTION, CHUNK, VOCABULARY, TOKENS = 6, 3, 4, 11, 5


def frame(index: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(index)
    return {
        "observation.state": torch.randn(STATE, generator=generator),
        "task": f"task {index}",
        "action": torch.randn(CHUNK, ACTION, generator=generator),
        "action_is_pad": torch.arange(CHUNK) >= CHUNK - index % 2,
    }


class Regressor(nn.Module):
    """Predicts a chunk of actions; its loss is deterministic, like ACT's without its VAE."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(STATE, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, CHUNK * ACTION)

    def features(self, batch: dict[str, Any]) -> Tensor:
        return self.encoder(batch["observation.state"])

    def act(self, batch: dict[str, Any]) -> Tensor:
        return self.head(self.features(batch)).unflatten(1, (CHUNK, ACTION))

    def loss(self, batch: dict[str, Any], seed: int) -> Tensor:
        error = (self.act(batch) - batch["action"]).abs()
        return (error * ~batch["action_is_pad"][..., None]).mean()


class FlowMatcher(nn.Module):
    """Learns a vector field; its loss draws noise and times from torch's generator, as SmolVLA and π0 do."""

    def __init__(self) -> None:
        super().__init__()
        size = CHUNK * ACTION
        self.field = nn.Sequential(nn.Linear(STATE + size + 1, 64), nn.Tanh(), nn.Linear(64, size))

    def act(self, batch: dict[str, Any]) -> Tensor:
        state = batch["observation.state"]
        x = torch.zeros(len(state), CHUNK * ACTION)
        for step in range(10):
            time = torch.full((len(state), 1), 1 - step / 10)
            x = x - self.field(torch.cat([state, x, time], 1)) / 10
        return x.unflatten(1, (CHUNK, ACTION))

    def loss(self, batch: dict[str, Any], seed: int) -> Tensor:
        with seeded(seed):
            action = batch["action"].flatten(1)
            noise, time = torch.randn_like(action), torch.rand(len(action), 1)
        x = time * noise + (1 - time) * action
        field = self.field(torch.cat([batch["observation.state"], x, time], 1))
        return (field - (noise - action)).square().mean()


class Tokenizer(nn.Module):
    """Predicts tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(STATE, 32), nn.Tanh(), nn.Linear(32, TOKENS * VOCABULARY))

    def logits(self, batch: dict[str, Any], seed: int = 0) -> Tensor:
        return 4 * self.head(batch["observation.state"]).unflatten(1, (TOKENS, VOCABULARY))


def trained(policy: nn.Module, steps: int) -> nn.Module:
    """Fit a policy to a smooth function of the state, so that it is a teacher worth keeping."""
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    weights = torch.randn(STATE, CHUNK * ACTION, generator=torch.Generator().manual_seed(0))
    for step in range(steps):
        state = torch.randn(64, STATE, generator=torch.Generator().manual_seed(step))
        action = (state @ weights / 2).tanh().unflatten(1, (CHUNK, ACTION))
        pad = torch.zeros(64, CHUNK, dtype=torch.bool)
        loss = policy.loss({"observation.state": state, "action": action, "action_is_pad": pad}, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


@pytest.fixture(scope="session")
def regressor() -> Regressor:
    torch.manual_seed(0)
    return trained(Regressor(), 200)


@pytest.fixture(scope="session")
def flow_matcher() -> FlowMatcher:
    torch.manual_seed(0)
    return trained(FlowMatcher(), 600)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    torch.manual_seed(0)
    return Tokenizer()


def build(directory: Path, label: Any, kinds: tuple[str, ...], count: int = 40, **settings: Any) -> AnchorCache:
    plan = CachePlan(kinds=kinds, frame_indices=tuple(range(count)), **settings)
    return build_cache(directory, plan, random_access(frame), label)


@pytest.fixture
def build_small() -> Any:
    return build
