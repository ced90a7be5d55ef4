# SPDX-License-Identifier: Apache-2.0
"""Run a module in `eval()` mode and put every submodule back as it was."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Set `module` to `eval()` inside the block.

    Each submodule gets its own mode back, because policies keep frozen towers in `eval()` while the rest
    trains; a single `train()` at the end would lose that.
    """
    training = [part for part in module.modules() if part.training]
    _set_training(training, value=False)
    try:
        yield
    finally:
        _set_training(training, value=True)


def _set_training(parts: list[nn.Module], *, value: bool) -> None:
    # At every retention step, for every module: `eval()` and assignment take three times as long.
    for part in parts:
        vars(part)["training"] = value
