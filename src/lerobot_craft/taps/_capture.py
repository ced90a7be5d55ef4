# SPDX-License-Identifier: Apache-2.0
"""Capture what flows through named modules and stop the forward once all is seen.

Does not see inside modules compiled with `torch.compile`: their submodules' hooks do not run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

import torch
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.taps._resolve import resolve_module

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True)
class TapPoint:
    """One place in a network.

    Attributes:
        path: Dotted path of a module.
        side: Take what the module returns, or its first positional argument. Some networks never call a
            layer as a module; then the input of what follows it is the only place to see its result.
    """

    path: str
    side: Literal["output", "input"] = "output"

    def __str__(self) -> str:
        return f"{self.path}:{self.side}"


class _StopForward(BaseException):
    """Ends a forward early. Not an `Exception`, so that no `except Exception` in a model swallows it."""

    def __init__(self, owner: Captured) -> None:
        super().__init__("the forward was stopped at a tap")
        self.owner = owner


@dataclass
class Captured:
    """The context of one captured forward; see `capture`.

    Attributes:
        points: The places asked for.
        values: After the `with` block, what was captured at each place, in the order of `points`.
    """

    root: nn.Module
    points: tuple[TapPoint, ...]
    stop: bool
    values: list[Tensor] = field(default_factory=list)
    _seen: dict[TapPoint, Tensor] = field(default_factory=dict)
    _handles: list[RemovableHandle] = field(default_factory=list)

    def __enter__(self) -> Self:
        modules = [resolve_module(self.root, point.path) for point in self.points]
        for point, module in zip(self.points, modules, strict=True):
            self._handles.append(self._attach(point, module))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        stopped = isinstance(error, _StopForward) and error.owner is self
        if error is not None and not stopped:
            return False
        missing = [str(point) for point in self.points if point not in self._seen]
        if missing:
            raise TapError(
                f"The forward ended without reaching {', '.join(missing)}. "
                "Tap a module that runs on an observation alone."
            )
        self.values = [self._seen[point] for point in self.points]
        return stopped

    def _attach(self, point: TapPoint, module: nn.Module) -> RemovableHandle:
        if point.side == "output":
            return module.register_forward_hook(lambda _m, _args, output: self._keep(point, output))
        return module.register_forward_pre_hook(lambda _m, args: self._keep(point, args))

    def _keep(self, point: TapPoint, value: object) -> None:
        if point not in self._seen:
            self._seen[point] = _first_tensor(point, value)
        if self.stop and len(self._seen) == len(self.points):
            raise _StopForward(self)


def capture(root: nn.Module, points: Sequence[TapPoint], *, stop: bool = True) -> Captured:
    """Capture the first value seen at each point during the forward inside a `with` block.

    The forward is ended as soon as every point was seen, so what lies behind the last of them costs nothing.
    Captured tensors are those of the graph: gradients flow through them. Hooks are removed on every way out,
    and an error of the forward itself passes through untouched.

    Args:
        root: Where the paths of `points` start.
        points: Places to capture; at least one, all different.
        stop: End the forward at the last point. False lets it run through.

    Raises:
        TapError: On entry if a path does not exist, on exit if a point was never reached.
    """
    unique = tuple(dict.fromkeys(points))
    if not unique or len(unique) != len(points):
        got = [str(point) for point in points]
        raise TapError(f"`points` is {got}, expected at least one and no repetition.")
    return Captured(root, unique, stop)


def _first_tensor(point: TapPoint, value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            if isinstance(item, torch.Tensor):
                return item
    raise TapError(f"{point} gave {type(value).__name__} without a tensor; tap a module that handles tensors.")
