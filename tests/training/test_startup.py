# SPDX-License-Identifier: Apache-2.0
"""What a run says before its first step adds up."""

import pytest
import torch
from torch import nn

from lerobot_craft.training._startup import memory_estimate, moments_per_parameter, parameter_table


def model() -> nn.Module:
    made = nn.ModuleDict({"model": nn.ModuleDict({name: nn.Linear(4, 4) for name in ("a", "b", "c", "d")})})
    for parameter in made["model"]["a"].parameters():
        parameter.requires_grad_(False)
    return made


def test_parameter_table_counts_by_module() -> None:
    lines = [line.split() for line in parameter_table(model(), None).splitlines()]
    assert lines[0] == ["Parameters", "all", "trained"]
    assert lines[1:] == [
        ["model.a", "20", "0"],
        ["model.b", "20", "20"],
        ["model.c", "20", "20"],
        ["model.d", "20", "20"],
        ["total", "80", "60"],
    ]


def test_parameters_behind_the_tap_are_said() -> None:
    text = parameter_table(model(), {"model.d.weight", "model.a.weight"})
    assert "Warning: 16 trained parameters lie behind the tap" in text
    assert "Warning" not in parameter_table(model(), {"model.a.weight"})


@pytest.mark.parametrize(("separate", "total"), [(False, 80 + 3 * 60), (True, 80 + 4 * 60)])
def test_memory_estimate(separate: bool, total: int) -> None:
    optimizer = torch.optim.AdamW(model().parameters())
    text = memory_estimate(model(), optimizer, separate_gradient=separate)
    assert f"{total * 4 / 1024:.1f} KiB (" in text or f"{total * 4} B (" in text


def test_moments() -> None:
    weights = [nn.Parameter(torch.zeros(1))]
    assert moments_per_parameter(torch.optim.SGD(weights, lr=1.0)) == 0
    assert moments_per_parameter(torch.optim.SGD(weights, lr=1.0, momentum=0.9)) == 1
    assert moments_per_parameter(torch.optim.Adam(weights)) == 2
