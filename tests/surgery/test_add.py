# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import Tensor, nn

from lerobot_craft.surgery import add_


def parameter(*values: float, grad: float | None = None, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    made = nn.Parameter(torch.tensor(values, dtype=dtype))
    made.grad = None if grad is None else torch.full_like(made, grad)
    return made


def gradients(loss: Tensor, parameters: list[nn.Parameter], scale: float = 1.0) -> list[Tensor | None]:
    return list(torch.autograd.grad(scale * loss, parameters, allow_unused=True))


@pytest.mark.parametrize("scale", [None, 1024.0])
def test_the_weighted_gradient_is_added_whatever_is_there(scale: float | None) -> None:
    both, narrow = parameter(1.0, 2.0, grad=10.0), parameter(3.0, grad=4.0, dtype=torch.bfloat16)
    only_anchors, only_task = parameter(5.0), parameter(6.0, grad=7.0)
    left_alone = parameter(8.0, grad=9.0)
    loss = (both**2).sum() + narrow.float().sum() + 3 * only_anchors.sum() + left_alone.sum()
    parameters = [both, narrow, only_anchors, only_task]
    retention = gradients(0.5 * loss, parameters, scale or 1.0)
    assert add_(parameters, retention, None if scale is None else torch.tensor(scale))
    assert retention == [None] * 4, "its memory is free"
    assert both.grad.tolist() == [11.0, 12.0]
    assert narrow.grad.tolist() == [4.5]
    assert narrow.grad.dtype == torch.bfloat16
    assert only_anchors.grad.tolist() == [1.5]
    assert only_task.grad.tolist() == [7.0]
    assert left_alone.grad.tolist() == [9.0]


def test_entries_that_are_not_finite_are_left_out() -> None:
    spoiled, sound = parameter(0.0, 4.0, grad=1.0), parameter(2.0, grad=1.0)
    alone = parameter(0.0, 9.0)
    # The root has an infinite slope at 0.
    loss = spoiled.sqrt().sum() + sound.sum() + alone.sqrt().sum()
    parameters = [spoiled, sound, alone]
    assert not add_(parameters, gradients(2.0 * loss, parameters))
    assert spoiled.grad.tolist() == [1.0, 1.5]
    assert sound.grad.tolist() == [3.0]
    assert alone.grad.tolist() == pytest.approx([0.0, 1 / 3])


def test_parameters_without_gradient_do_not_share_memory() -> None:
    first, second = parameter(1.0, 2.0), parameter(3.0, 4.0)
    add_([first, second], gradients((first + second).sum(), [first, second]))
    first.grad.mul_(0)
    assert second.grad.tolist() == [1.0, 1.0]
