# SPDX-License-Identifier: Apache-2.0
"""An MLP that knows task A learns task B, with and without the constraint: `python examples/any_loop.py`."""

import copy

import torch
from torch import Tensor, nn

from lerobot_craft import RetentionConstraint, preset

torch.manual_seed(0)
torch.set_num_threads(1)  # faster than two for a network this small
inputs_a, inputs_b = torch.randn(256, 8) - 1.0, torch.randn(256, 8) + 1.0
targets_a, targets_b = inputs_a.sin() @ torch.randn(8, 2), inputs_b.cos() @ torch.randn(8, 2)
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


def loss_a(network: nn.Module, rows: Tensor | slice = slice(None)) -> Tensor:
    return nn.functional.mse_loss(network(inputs_a[rows]), targets_a[rows])


def loss_b(network: nn.Module) -> Tensor:
    return nn.functional.mse_loss(network(inputs_b), targets_b)


def learn_b(student: nn.Module, *, constrained: bool) -> None:
    # 128 samples of A are kept. At most 10 % above the loss that the teacher has on them is allowed.
    config = preset("craft", epsilon_start=0.1)
    constraint = RetentionConstraint(student, lambda: loss_a(student, torch.arange(128)), config)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for step in range(1000):
        optimizer.zero_grad()
        loss_b(student).backward()
        if constrained:
            constraint.apply_(step)
        optimizer.step()


optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(1000):
    optimizer.zero_grad()
    loss_a(model).backward()
    optimizer.step()
print(f"{'':24}loss on A  loss on B\n{'teacher, knows A':24}{loss_a(model):9.3f}  {loss_b(model):9.3f}")
for constrained in (False, True):
    student = copy.deepcopy(model)
    learn_b(student, constrained=constrained)
    name = "learns B, constrained" if constrained else "learns B, plainly"
    print(f"{name:24}{loss_a(student):9.3f}  {loss_b(student):9.3f}")
