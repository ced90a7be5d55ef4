# SPDX-License-Identifier: Apache-2.0
"""Find a module by its dotted path, and say what was probably meant when it is not there."""

from __future__ import annotations

import contextlib
import difflib
from typing import TYPE_CHECKING

from lerobot_craft.errors import TapError

if TYPE_CHECKING:
    from torch import nn

SUGGESTIONS = 5


def resolve_module(root: nn.Module, path: str) -> nn.Module:
    """Return the submodule of `root` at `path`.

    Args:
        root: The module whose `named_modules()` names the paths.
        path: A dotted path such as `model.encoder.layers.2`.

    Raises:
        TapError: If no submodule has this path; the message names the nearest ones.
    """
    # Asked at every retention step: all modules are named only where this one is not found.
    with contextlib.suppress(AttributeError):
        return root.get_submodule(path)
    modules: dict[str, nn.Module] = dict(root.named_modules())
    near = difflib.get_close_matches(path, modules, n=SUGGESTIONS, cutoff=0.5)
    deepest = _deepest_parent(modules, path)
    children = [name for name in modules if name.rpartition(".")[0] == deepest and name]
    hints = list(dict.fromkeys([*near, *children]))[:SUGGESTIONS]
    raise TapError(
        f"`path` is {path!r}, but {type(root).__name__} has no such module. "
        f"Nearest: {', '.join(hints)}. Give one of `policy.named_modules()`."
    )


def _deepest_parent(modules: dict[str, nn.Module], path: str) -> str:
    parent = path
    while parent and parent not in modules:
        parent = parent.rpartition(".")[0]
    return parent
