# SPDX-License-Identifier: Apache-2.0
"""Captured forwards stop where they should, keep the graph, and leave no hooks behind."""

import pytest
import torch
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.taps import TapPoint, capture, eval_mode, parameters_reached, resolve_module


class Counting(nn.Module):
    """A linear layer that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x)


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Counting(), Counting(), Counting(), Counting())


def hook_count(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def calls(net: nn.Sequential) -> list[int]:
    return [m.calls for m in net if isinstance(m, Counting)]


def test_forward_stops_at_last_point(net: nn.Sequential) -> None:
    x = torch.randn(2, 3)
    with capture(net, [TapPoint("2"), TapPoint("0")]) as captured:
        net(x)
    assert calls(net) == [1, 1, 1, 0]
    torch.testing.assert_close(captured.values[1], net[0](x))
    torch.testing.assert_close(captured.values[0], net[:3](x))
    assert hook_count(net) == 0


def test_input_point_stops_before_the_module_runs(net: nn.Sequential) -> None:
    x = torch.randn(2, 3)
    with capture(net, [TapPoint("2", "input")]) as captured:
        net(x)
    assert calls(net) == [1, 1, 0, 0]
    torch.testing.assert_close(captured.values[0], net[:2](x))


def test_without_stop_the_forward_runs_through(net: nn.Sequential) -> None:
    x = torch.randn(2, 3)
    with capture(net, [TapPoint("0")], stop=False):
        out = net(x)
    assert calls(net) == [1, 1, 1, 1]
    assert out.shape == (2, 3)


def test_gradients_flow_through_what_was_captured(net: nn.Sequential) -> None:
    with capture(net, [TapPoint("1")]) as captured:
        net(torch.randn(2, 3))
    captured.values[0].sum().backward()
    assert [p.grad is not None for p in net.parameters()] == [True] * 4 + [False] * 4


def test_only_the_owner_swallows_the_stop(net: nn.Sequential) -> None:
    went_on = False
    with capture(net, [TapPoint("1")]) as outer:
        with capture(net, [TapPoint("3")]) as inner:
            net(torch.randn(2, 3))
        went_on = True  # reached only if the inner context took the outer stop for its own
    assert not went_on
    assert len(outer.values) == 1
    assert inner.values == []
    assert calls(net) == [1, 1, 0, 0]
    assert hook_count(net) == 0


def test_nested_inner_stop_lets_the_outer_go_on(net: nn.Sequential) -> None:
    x = torch.randn(2, 3)
    with capture(net, [TapPoint("2")]) as outer:
        with capture(net, [TapPoint("0")]) as inner:
            net(x)
        net(x)
    torch.testing.assert_close(outer.values[0], net[:3](x))
    torch.testing.assert_close(inner.values[0], net[0](x))
    assert hook_count(net) == 0


def test_a_failing_forward_leaves_no_hooks_and_its_own_error(net: nn.Sequential) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"), capture(net, [TapPoint("1")]):
        net(torch.randn(2, 5))
    assert hook_count(net) == 0


def test_a_wrong_path_leaves_no_hooks(net: nn.Sequential) -> None:
    with pytest.raises(TapError), capture(net, [TapPoint("0"), TapPoint("nowhere")]):
        net(torch.randn(2, 3))
    assert hook_count(net) == 0


def test_a_model_that_catches_exceptions_cannot_swallow_the_stop() -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2)
            self.finished = False

        def forward(self, x: Tensor) -> Tensor:
            try:
                x = self.first(x)
            except Exception:
                x = x * 0
            self.finished = True
            return x

    careful = Careful()
    with capture(careful, [TapPoint("first")]):
        careful(torch.randn(1, 2))
    assert not careful.finished


@pytest.mark.parametrize("points", [[], [TapPoint("0"), TapPoint("0")]])
def test_empty_or_repeated_points_are_refused(net: nn.Sequential, points: list[TapPoint]) -> None:
    with pytest.raises(TapError, match="`points`"):
        capture(net, points)


def test_wrong_path_suggests_near_ones() -> None:
    root = nn.ModuleDict({"encoder": nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(1, 1)] * 2)})})
    with pytest.raises(TapError, match=r"'encoder.layer.1'.*Nearest: encoder\.layers"):
        resolve_module(root, "encoder.layer.1")
    with pytest.raises(TapError, match=r"encoder\.layers\.0"):
        resolve_module(root, "encoder.layers.7")


def test_eval_mode_puts_every_submodule_back(net: nn.Sequential) -> None:
    net.train()
    net[1].eval()
    before = [m.training for m in net.modules()]
    with eval_mode(net):
        assert not any(m.training for m in net.modules())
    assert [m.training for m in net.modules()] == before
    with pytest.raises(RuntimeError), eval_mode(net):
        net(torch.randn(2, 5))
    assert [m.training for m in net.modules()] == before


def test_parameters_reached_and_barrier(net: nn.Sequential) -> None:
    with capture(net, [TapPoint("1")], stop=False) as captured:
        out = net(torch.randn(2, 3))
    names = {id(p): name for name, p in net.named_parameters()}
    everything = {names[i] for i in parameters_reached([out])}
    behind = {names[i] for i in parameters_reached([out], barrier=captured.values)}
    assert everything == set(names.values())
    assert behind == {f"{i}.linear.{kind}" for i in (2, 3) for kind in ("weight", "bias")}
