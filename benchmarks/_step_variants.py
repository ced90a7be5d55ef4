# SPDX-License-Identifier: Apache-2.0
"""The steps that `gpu_step.py` compares, on one run: real ones, the floor under them, and the naive arithmetic."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from step_overhead import naive_surgery

FIXED = {
    "lambda_controller": "fixed",
    "use_grad_projection": False,
    "epsilon_schedule": "constant",
    "held_out_anchors": 0.0,
}
# Longer than a batch of anchors takes to decode.
_QUIET_S = 0.03
# Timed of each variant in a round.
_STEPS = 3
# Projection needs the retention gradient by itself, as the bound of `preset("craft")` does.
SEPARATE = {**FIXED, "use_grad_projection": True, "projection": "always"}


@dataclass(frozen=True)
class Variant:
    """One row of a table.

    Attributes:
        name: Of the row.
        kind: `plain`, `ours`, `floor` or `naive`.
        mode: The retention mode.
        anchors: Anchors per retention step.
        every: Retention runs every so many steps.
        separate: Whether the retention gradient is had by itself.
        together: Whether anchors are further rows of the task batch.
        ready: Whether anchors are decoded before the run, so that no thread reads ahead beside it.
        ahead: Whether the next step's anchors are prepared at the end of a step, while the device is still at work.
        hooked: Whether λ·r goes to `.grad` through a hook on every parameter and never exists as a whole.
        cache: Its anchors, where they are not those of all rows.
    """

    name: str
    kind: str = "ours"
    mode: str = "hidden"
    anchors: int = 8
    every: int = 1
    separate: bool = False
    together: bool = False
    ready: bool = False
    ahead: bool = True
    hooked: bool = False
    cache: Path | None = None


@dataclass
class Timed:
    """What was measured of one variant: seconds a step, peak bytes, seconds spent waiting for anchors."""

    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    waited: list[float] = field(default_factory=list)


class Floor:
    """The anchors' forward and backward pass on a batch that is ready on the device, and nothing else."""

    def __init__(self, model: nn.Module, loss: Callable[[], Tensor]) -> None:
        self._model = model
        self._loss = loss

    def look_ahead(self, step: int) -> None:
        """Do nothing: the batch is ready."""

    def apply_(self, step: int, *, statistics: bool) -> None:
        """Add the gradient of the loss to `.grad`."""
        from lerobot_craft.taps import eval_mode

        with eval_mode(self._model), torch.enable_grad():
            self._loss().backward()


class Naive:
    """Clone, zero, backward, clone, list arithmetic."""

    def __init__(self, run: Any, term: Callable[[], Tensor]) -> None:  # noqa: ANN401
        self._run = run
        self._term = term

    def look_ahead(self, step: int) -> None:
        """Do nothing: anchors are prepared when they are needed."""

    def apply_(self, step: int, *, statistics: bool) -> None:
        """Write the merged gradient to `.grad`."""
        from lerobot_craft.taps import eval_mode

        parameters = [p for p in self._run.model.parameters() if p.requires_grad]
        with eval_mode(self._run.model), torch.enable_grad():
            naive_surgery(parameters, self._run.optimizer, self._term)


class Waited:
    """Anchor batches whose `next` is timed."""

    def __init__(self, batches: Any) -> None:  # noqa: ANN401
        self._batches = batches
        self.seconds: list[float] = []

    def __next__(self) -> Any:  # noqa: ANN401
        began = time.perf_counter()
        batch = next(self._batches)
        self.seconds.append(time.perf_counter() - began)
        return batch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._batches, name)


class Ready:
    """One batch of anchors again and again, decoded beforehand."""

    def __init__(self, batches: Any) -> None:  # noqa: ANN401
        self._batches = batches
        self._batch = next(batches)
        batches.close()

    def __next__(self) -> Any:  # noqa: ANN401
        return self._batch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._batches, name)


def hooked_gradient(loss: Tensor, parameters: Sequence[nn.Parameter], factor: Tensor) -> list[Tensor]:
    """Clean r and add it to `.grad` inside the backward pass, so that it never exists as a whole; return the sums."""
    from lerobot_craft.surgery._merge import zero_nonfinite

    sums: list[Tensor] = []

    def clean(gradient: Tensor) -> Tensor:
        sums.append(gradient.sum(dtype=torch.float32))
        return zero_nonfinite(gradient)

    handles = [parameter.register_hook(clean) for parameter in parameters]
    torch.autograd.backward(loss, factor.to(loss, copy=True), inputs=list(parameters))
    for handle in handles:
        handle.remove()
    return sums


def all_finite(parameters: Sequence[nn.Parameter], sums: list[Tensor], scale: None = None) -> Tensor:
    """Tell whether the gradient was finite, which is in `.grad` by now."""
    return torch.isfinite(torch.stack(sums)).all()


def make_loop(run: Any, variant: Variant, cache: Path) -> Any:  # noqa: ANN401
    """Add a variant's retention to the run as `lerobot-craft train` does, and return the loop."""
    from lerobot_craft.anchors import open_cache
    from lerobot_craft.training._config import CraftConfig
    from lerobot_craft.training._run import _make_loop

    run.craft = CraftConfig(enabled=False)
    run.cache = None
    if variant.kind != "plain":
        run.craft = CraftConfig(
            retention_mode=variant.mode,
            anchor_batch_size=variant.anchors,
            retention_freq=variant.every,
            **(SEPARATE if variant.separate else FIXED),
        )
        run.cache = open_cache(variant.cache or cache)
    loop = _make_loop(run, ())
    if loop.retention is not None:
        anchors = loop.retention.term._anchors
        anchors._batches = Waited(Ready(anchors._batches) if variant.ready else anchors._batches)
    return loop


def make_step(run: Any, variant: Variant, cache: Path, batch: dict[str, Any]) -> tuple[Callable[[int], None], Any]:  # noqa: ANN401
    """Return one training step of the variant on a fixed task batch, and its loop."""
    from lerobot_craft.training._step import train_step

    loop = make_loop(run, variant, cache)
    constraint = loop.constraint
    together = loop.one_pass if variant.together else None
    if variant.together and together is None:
        raise RuntimeError(f"`{variant.name}`: this run takes two passes.")
    if variant.kind == "floor":
        constraint = Floor(run.model, ready_loss(loop.retention.term))
    elif variant.kind == "naive":
        constraint = Naive(run, loop.retention.term)
    elif not variant.ahead:
        constraint.look_ahead = lambda step: None
    hooked = {"_gradient": hooked_gradient, "add_": all_finite}
    changed = mock.patch.multiple("lerobot_craft.constraint", **hooked) if variant.hooked else None

    def step(number: int) -> None:
        with changed or contextlib.nullcontext():
            train_step(run, dict(batch), constraint, together, step=number, statistics=False)

    return step, loop


def ready_loss(term: Any) -> Callable[[], Tensor]:  # noqa: ANN401
    """Return the term's loss on one anchor batch that was prepared before."""
    from lerobot_craft.retention import HiddenRetention
    from lerobot_craft.retention._hidden_loss import hidden_loss

    _, batch, data = next(term._anchors)
    if isinstance(term, HiddenRetention):
        frames = data
        with torch.no_grad():
            target = batch.targets[term._target].to(term._features(frames).device, torch.float32)
        return lambda: hidden_loss(term._features(frames).float(), target, "mse")
    return lambda: term._policy_loss(dict(data), 0)


def clock(device: str) -> float:
    """Return the time once the device has nothing left to do."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(
    run: Any,  # noqa: ANN401
    variants: Sequence[Variant],
    cache: Path,
    device: str,
    *,
    warm: int,
    rounds: int,
    after_round: Callable[[dict[str, Timed]], None],
) -> None:
    """Time the variants in turn, a few steps or one cycle of `every` each a round, on one task batch.

    What a step with anchors leaves to the thread that reads ahead falls on the next step of a run, and must not fall on
    the next variant: such steps are timed behind another of their kind, and all wait before they begin.

    Args:
        run: The run they share, weights and all.
        variants: What to time.
        cache: The anchors.
        device: `cuda` or `cpu`.
        warm: Rounds that do not count.
        rounds: Rounds that do.
        after_round: Told all that was measured so far.
    """
    batch = next(make_loop(run, Variant("plain", "plain"), cache)._batches())
    made = {variant: make_step(run, variant, cache, batch) for variant in variants}
    found = {variant.name: Timed() for variant in variants}
    for turn in range(-warm, rounds):
        for variant, (step, loop) in made.items():
            time.sleep(_QUIET_S)
            if variant.kind == "ours" and variant.every == 1:
                step(1)
            began = clock(device)
            peak = 0
            # A round that does not count need not last.
            steps = max(variant.every, _STEPS if turn >= 0 else 1)
            for number in range(1, steps + 1):
                step(number)
                # The step itself resets the peak at its start.
                peak = max(peak, torch.cuda.max_memory_allocated() if device == "cuda" else 0)
            seconds = (clock(device) - began) / steps
            if turn >= 0:
                timed = found[variant.name]
                timed.seconds.append(seconds)
                timed.peak = max(timed.peak, peak)
                if loop.retention is not None and variant.kind == "ours":
                    timed.waited.append(loop.retention.term._anchors._batches.seconds[-1])
        if turn >= 0:
            after_round(found)
    for _, loop in made.values():
        if loop.retention is not None:
            loop.retention.term._anchors._batches.close()
