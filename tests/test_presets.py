# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
import torch
from torch import nn

from lerobot_craft import PRESETS, RetentionConstraint, preset
from lerobot_craft.errors import SettingsError
from lerobot_craft.presets import presets_table


def test_the_methods_users_know_are_there() -> None:
    assert {"craft", "er", "lwf", "agem", "ewc", "l2sp", "plain"} <= set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid(name: str) -> None:
    assert preset(name).problems() == []


def test_changes_override_the_preset() -> None:
    assert preset("er", initial_lambda=2.0).initial_lambda == 2.0


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="`preset=crafty` is unknown: expected one of craft, seed, er"):
        preset("crafty")


def test_agem_is_its_paper() -> None:
    """g̃ = g − (g·r / r·r)·r where g·r < 0, g otherwise (Chaudhry et al. 2019, eq. 11)."""
    for seed in range(10):
        torch.manual_seed(seed)
        model = nn.ParameterList([nn.Parameter(torch.zeros(5, dtype=torch.float64))])
        g, r = torch.randn(2, 5, dtype=torch.float64)
        model[0].grad = g.clone()
        RetentionConstraint(model, lambda m=model, r=r: m[0] @ r, preset("agem")).apply_(0)
        expected = g - (g @ r) / (r @ r) * r if g @ r < 0 else g
        torch.testing.assert_close(model[0].grad, expected)


def test_the_docs_print_the_table_in_code() -> None:
    guide = Path(__file__).parents[1] / "docs" / "constraint.md"
    assert presets_table() in guide.read_text()
