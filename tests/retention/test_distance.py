# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import nn

from lerobot_craft import RetentionConstraint, preset
from lerobot_craft.errors import RetentionError
from lerobot_craft.retention import EWC, L2SP, diagonal_fisher


def moved(model: nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


def test_l2sp_is_half_the_squared_distance_from_where_it_was_built() -> None:
    model = nn.Linear(3, 2)
    term = L2SP(model)
    assert term().item() == 0.0
    moved(model, 0.5)
    assert term().item() == pytest.approx(0.5 * 8 * 0.25)
    (gradient,) = torch.autograd.grad(term(), [model.bias])
    assert gradient.tolist() == pytest.approx([0.5, 0.5])


def test_frozen_parameters_do_not_count() -> None:
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    term = L2SP(model)
    moved(model, 0.5)
    assert term().item() == pytest.approx(0.5 * 2 * 0.25)


def test_a_shared_parameter_counts_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    term = L2SP(model)
    moved(model, 1.0)
    assert term().item() == pytest.approx(0.5 * 4)


def test_fisher_of_a_linear_gaussian_model_is_known() -> None:
    """For y = w·x + noise of variance 1 the Fisher information of w is E[x²]·E[residual²] = E[x²]."""
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False)
    inputs = torch.randn(4000, 1) * torch.tensor([2.0])
    targets = model(inputs).detach() + torch.randn(4000, 1)
    losses = [lambda x=x, y=y: 0.5 * (model(x) - y).square().sum() for x, y in zip(inputs, targets, strict=True)]
    fisher = diagonal_fisher(model, losses)
    assert fisher["weight"].item() == pytest.approx(4.0, rel=0.1)
    assert model.weight.grad is None


def test_ewc_weighs_the_distance_by_importance() -> None:
    model = nn.Linear(1, 1)
    term = EWC(model, {"weight": torch.tensor([[4.0]]), "bias": torch.tensor([0.0])})
    moved(model, 0.5)
    assert term().item() == pytest.approx(0.5 * 4.0 * 0.25)


def test_ewc_names_what_does_not_fit() -> None:
    with pytest.raises(RetentionError, match=r"bias: got none, expected shape \[1\]; *|weight: got shape \[2\]"):
        EWC(nn.Linear(1, 1), {"weight": torch.ones(2)})


def test_no_losses_and_no_parameters_are_refused() -> None:
    with pytest.raises(RetentionError, match="`losses` is empty"):
        diagonal_fisher(nn.Linear(1, 1), [])
    with pytest.raises(RetentionError, match="no trainable parameter"):
        L2SP(nn.Linear(1, 1).requires_grad_(False))


@pytest.mark.parametrize("name", ["l2sp", "ewc"])
def test_the_presets_hold_parameters_back(name: str) -> None:
    def distance(*, retained: bool) -> float:
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        start = model.weight.detach().clone()
        inputs = torch.randn(32, 4)
        samples = [lambda x=x: model(x).square().sum() for x in inputs]
        term = L2SP(model) if name == "l2sp" else EWC(model, diagonal_fisher(model, samples))
        constraint = RetentionConstraint(model, term, preset(name))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4 if name == "ewc" else 0.1)
        for step in range(100):
            optimizer.zero_grad()
            (model(inputs) - 3.0).square().mean().backward()
            if retained:
                constraint.apply_(step)
            optimizer.step()
        return (model.weight - start).norm().item()

    assert distance(retained=True) < 0.9 * distance(retained=False)
