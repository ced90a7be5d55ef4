# SPDX-License-Identifier: Apache-2.0
"""From a retention mode to its term: loads or builds the anchor cache and connects it to the policy; trains nothing."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lerobot_craft.retention import L2SP, RetentionTerm
from lerobot_craft.training._build import Run
from lerobot_craft.training._config import RetentionMode


@dataclass
class Retention:
    """What a run retains.

    Attributes:
        term: Returns the loss of the next anchor batch.
        source: Where it comes from, for the start-up block.
        anchors: How many anchors were loaded; None where the mode needs none.
        held_out: Returns the loss on anchors kept out of training; None where there are none.
        reference: Tensors a resumed run cannot make again: starting point and importance of the parameters.
        behind_tap: Names of the parameters behind the tap; None where the mode has no tap.
    """

    term: RetentionTerm
    source: str
    anchors: int | None = None
    held_out: Callable[[], float] | None = None
    reference: dict[str, Tensor] | None = None
    behind_tap: frozenset[str] | None = None


def build_retention(run: Run, saved: dict[str, Tensor] | None) -> Retention | None:
    """Return what `craft.retention_mode` retains; None for `none`.

    Random numbers drawn on the way do not move the run's own.

    Args:
        run: The run, its policy and processors ready.
        saved: The `reference` of the run this one resumes.
    """
    state = torch.get_rng_state()
    try:
        match run.craft.mode:
            case RetentionMode.NONE:
                return None
            case RetentionMode.L2SP:
                return _l2sp(run, saved)
            case mode:
                raise NotImplementedError(mode)
    finally:
        torch.set_rng_state(state)


def _l2sp(run: Run, saved: dict[str, Tensor] | None) -> Retention:
    start = _trained(run.model) if saved is None else _named(saved, "start")
    with _parameters_at(run.model, start):
        term = L2SP(run.model)
    return Retention(
        term=_autocast(run, term),
        source="distance to the teacher's parameters",
        held_out=lambda: float(term()),
        reference=_prefixed(start, "start"),
    )


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def _prefixed(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


@contextlib.contextmanager
def _parameters_at(model: nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
    present = _trained(model)
    _set(model, values)
    try:
        yield
    finally:
        _set(model, present)


@torch.no_grad()
def _set(model: nn.Module, values: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in values:
            parameter.copy_(values[name])


def _autocast(run: Run, term: RetentionTerm) -> RetentionTerm:
    return term
