# SPDX-License-Identifier: Apache-2.0
"""Distance between the parameters and where they started: L2-SP and EWC; needs no anchors while training."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from lerobot_craft.errors import RetentionError


class EWC:
    """Elastic weight consolidation, ½·Σ Fᵢ·(θᵢ − θᵢ*)² (Kirkpatrick et al., PNAS 2017).

    θ* are the parameters when the term is built. They and F are kept in the parameters' own dtype: two more copies of
    what is trained.

    Args:
        model: The model; parameters that require no gradient do not count.
        importance: F by parameter name, as `diagonal_fisher` returns it.

    Raises:
        RetentionError: If a trainable parameter has no importance or one of another shape.
    """

    def __init__(self, model: nn.Module, importance: dict[str, Tensor]) -> None:
        self._anchored: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        wrong: list[str] = []
        for name, parameter in trainable(model).items():
            weight = importance.get(name)
            if weight is None or weight.shape != parameter.shape:
                got = "none" if weight is None else f"shape {list(weight.shape)}"
                wrong.append(f"{name}: got {got}, expected shape {list(parameter.shape)}")
            else:
                start = parameter.detach().clone()
                self._anchored.append((parameter, start, weight.to(start)))
        if wrong:
            raise RetentionError("`importance` does not fit the model's trainable parameters: " + "; ".join(wrong))

    def __call__(self) -> Tensor:
        """Return the weighted distance, in float32 or wider."""
        terms = [
            (weight * (parameter - start).square()).sum(dtype=torch.promote_types(parameter.dtype, torch.float32))
            for parameter, start, weight in self._anchored
        ]
        return 0.5 * torch.stack(terms).sum()


class L2SP:
    """Squared distance to the starting point, ½·‖θ − θ*‖² (Li et al., "Explicit Inductive Bias…", ICML 2018).

    θ* are the parameters when the term is built.

    Args:
        model: The model; parameters that require no gradient do not count.
    """

    def __init__(self, model: nn.Module) -> None:
        self._anchored = [(parameter, parameter.detach().clone()) for parameter in trainable(model).values()]

    def __call__(self) -> Tensor:
        """Return the distance, in float32 or wider."""
        terms = [
            (parameter - start).square().sum(dtype=torch.promote_types(parameter.dtype, torch.float32))
            for parameter, start in self._anchored
        ]
        return 0.5 * torch.stack(terms).sum()


def diagonal_fisher(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> dict[str, Tensor]:
    """Estimate the diagonal of the empirical Fisher information, the mean of squared gradients.

    The square is taken per loss, so each loss should be over one anchor: over a batch of n the gradients partly cancel
    before they are squared, and the estimate shrinks by up to n. `.grad` is not touched.

    Args:
        model: The model, in the mode in which the losses are to be taken.
        losses: One callable per anchor that returns its negative log-likelihood, or the policy's own loss.

    Returns:
        F by parameter name, in float32 or wider; 0 where no loss depends on a parameter.

    Raises:
        RetentionError: If `losses` is empty.
    """
    named = trainable(model)
    parameters = list(named.values())
    fisher = [
        torch.zeros_like(parameter, dtype=torch.promote_types(parameter.dtype, torch.float32))
        for parameter in parameters
    ]
    count = 0
    for loss in losses:
        gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
        for total, gradient in zip(fisher, gradients, strict=True):
            if gradient is not None:
                total.add_(gradient.to(total.dtype).square())
        count += 1
    if count == 0:
        raise RetentionError("`losses` is empty: expected one callable per anchor, 100 or more for a usable estimate.")
    return {name: total / count for name, total in zip(named, fisher, strict=True)}


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that require a gradient, by name; a shared one once, under its first name.

    Raises:
        RetentionError: If there is none.
    """
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not named:
        raise RetentionError("The model has no trainable parameter: expected at least one with `requires_grad=True`.")
    return named
