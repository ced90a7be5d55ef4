# SPDX-License-Identifier: Apache-2.0
"""Two gloo processes under DistributedDataParallel, against each other and against one with the doubled batch."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lerobot_craft import ConstraintConfig, RetentionConstraint
from lerobot_craft.dual import Reference

STEPS = 20
BATCH = 8
SETTINGS = {
    "separate": {"projection": "always", "conflict_threshold": 0.5},
    "cheap": {"projection": "off"},
    "bounded": {"projection": "violated", "max_retention_ratio": 0.5},
}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.head = nn.Linear(16, 2)
        self.only_anchors = nn.Linear(16, 2)  # the task never reaches it, and odd anchor batches do not either

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.trunk(inputs))


class Anchors:
    """Rank r of n takes every n-th sample of the global batch."""

    def __init__(self, model: Network, rank: int, world: int) -> None:
        self.model, self.rank, self.world, self.calls = model, rank, world, 0
        self.inputs = torch.randn(512, 4, generator=torch.Generator().manual_seed(1))

    def __call__(self) -> Tensor:
        start = self.calls * 2 * BATCH
        self.calls += 1
        features = self.model.trunk(self.inputs[start + self.rank : start + 2 * BATCH : self.world])
        loss = (self.model.head(features) - 0.3).square().mean()
        if self.world == 1 or self.rank == 0:
            # One process only has a gradient here; twice, so that the mean over two is what one process has.
            loss = loss + self.world * 0.1 * self.model.only_anchors(features.detach()[:1]).square().sum()
        return loss

    def reference(self) -> Reference:
        return Reference(0.0, 0.1)


def train(rank: int, world: int, name: str) -> dict[str, object]:
    model = Network()
    wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True) if world > 1 else model
    config = ConstraintConfig(
        **SETTINGS[name],
        retention_freq=1,
        epsilon_units="relative",
        epsilon_schedule="constant",
        epsilon_start=0.2,
        lambda_lr=0.3,
    )
    constraint = RetentionConstraint(model, Anchors(model, rank, world), config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(STEPS, 2 * BATCH, 4, generator=torch.Generator().manual_seed(2))
    multipliers, gradients = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(inputs[step, rank::world]).sub(1.0).square().mean().backward()
        report = constraint.apply_(step)
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        optimizer.step()
        multipliers.append(report.floats()["multiplier"])
    return {"weights": model.state_dict(), "multipliers": multipliers, "gradients": gradients}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for name in SETTINGS:
        torch.save(train(rank, 2, name), f"{folder}/{name}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        environment = {"GLOO_SOCKET_IFNAME": "lo", **os.environ}
        ranks = [subprocess.Popen([sys.executable, __file__, str(rank), made], env=environment) for rank in range(2)]
        assert [process.wait(timeout=100) for process in ranks] == [0, 0]
        yield Path(made)


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_and_lambda_are_the_same_on_both_ranks_bit_for_bit(folder: Path, name: str) -> None:
    first, second = (torch.load(folder / f"{name}-{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first["multipliers"] == second["multipliers"]
    assert len(set(first["multipliers"])) > 5
    for left, right in zip(first["gradients"], second["gradients"], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))
    for key, value in first["weights"].items():
        assert torch.equal(value, second["weights"][key]), key


@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_equal_one_with_the_doubled_batch(folder: Path, name: str) -> None:
    both = torch.load(folder / f"{name}-0.pt", weights_only=True)
    alone = train(0, 1, name)
    assert both["multipliers"] == pytest.approx(alone["multipliers"], rel=1e-4)
    for key, value in both["weights"].items():
        torch.testing.assert_close(value, alone["weights"][key], rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    worker(int(sys.argv[1]), sys.argv[2])
