# SPDX-License-Identifier: Apache-2.0
"""A tap on a LeRobot policy: its hidden states on a preprocessed batch, and what lies in front and behind.

**In front** are the parameters the tapped hidden states depend on; **behind** are those the policy's loss
depends on and the hidden states do not. Both are read off autograd graphs of the policy in `eval()` mode,
with every parameter temporarily requiring grad, so a frozen one is counted where it stands. Parameters in
neither set do nothing at inference (ACT's VAE encoder, the language head of pi0, the last feed-forward of a
VLM whose expert reads keys and values only).

Freezing what lies behind does not by itself fix the action. Some parameters in front also act **around** the
tap: the expert of SmolVLA, pi0 and pi05 reads the keys and values of *every* VLM layer, so layers before the
tap reach the action without passing through it, and pi0_fast sends its action tokens through the very layers
that are tapped on the prefix. `Tap.parameters_around` names them. Tap every layer and all
tokens to close those ways as far as hidden states can; retaining actions closes them all.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.policies._anchor_mode import anchor_mode
from lerobot_craft.policies._base import Batch, PolicyAdapter, Trace, as_tokens, base_policy
from lerobot_craft.policies._registry import OtherAdapter, adapter_for
from lerobot_craft.policies._targets import policy_loss
from lerobot_craft.taps import (
    Pooling,
    TapPoint,
    TokenLayout,
    capture,
    left_aligned,
    parameters_reached,
    pool,
    resolve_module,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lerobot.policies.pretrained import PreTrainedPolicy

MULTI_VECTOR: tuple[str, ...] = ("tokens", "vision_mean_text_last")


@dataclass(frozen=True)
class Tap:
    """Hidden states of one policy; made by `make_tap`.

    Attributes:
        model: The policy as it was given, with its wrappers; parameter names are those of this object.
        policy: The LeRobot policy inside.
        adapter: What is known about its type.
        layers: The places of each tapped layer.
        indices: Non-negative layer numbers; empty for a tap by path.
        batch_first: Whether a tap by path gives [batch, tokens, dim] and not [tokens, batch, dim].
    """

    model: nn.Module
    policy: PreTrainedPolicy
    adapter: PolicyAdapter
    layers: tuple[tuple[TapPoint, ...], ...]
    indices: tuple[int, ...]
    batch_first: bool = True

    def hidden(self, batch: Batch) -> tuple[list[Tensor], TokenLayout]:
        """Run the policy just far enough and return what the tapped layers give.

        Runs in `eval()` mode and puts the mode back. Grad is on or off as outside; so is autocast.

        Args:
            batch: Preprocessed; action labels are not needed, except for policy types without an adapter.

        Returns:
            Per layer the hidden states [batch, tokens, dim] in the model's dtype, and the layout they share.
        """
        trace = Trace()
        values = iter(self._run(batch, trace))
        hidden = [self._tokens([next(values) for _ in layer], layer, batch) for layer in self.layers]
        return hidden, self.adapter.layout(self.layers[0][0].path, hidden[0], trace)

    def features(self, batch: Batch, pooling: Pooling) -> Tensor:
        """Pooled hidden states in float32.

        Returns:
            `vision_mean_text_last`: [batch, layers, 2, dim]. `tokens`: [batch, layers, tokens, dim], valid
            tokens first and zeros behind. The other poolings: [batch, dim] for one layer,
            [batch, layers, 1, dim] for several.
        """
        hidden, layout = self.hidden(batch)
        pooled = [pool(layer, layout, pooling) for layer in hidden]
        stacked = self._stack(pooled)
        if pooling in MULTI_VECTOR:
            return stacked
        return pooled[0] if len(pooled) == 1 else stacked[:, :, None]

    def tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """`features(batch, "tokens")` with its mask [batch, tokens]."""
        hidden, layout = self.hidden(batch)
        aligned = [left_aligned(layer.float(), layout) for layer in hidden]
        return self._stack([tokens for tokens, _ in aligned]), aligned[0][1]

    def parameters_in_front(self, batch: Batch | None = None) -> dict[str, nn.Parameter]:
        """Parameters the tapped hidden states depend on.

        Args:
            batch: A preprocessed batch; by default one sample of zeros with the sizes of the config.
        """
        return self._named(self._front(self._batch(batch)))

    def parameters_behind(self, batch: Batch | None = None) -> dict[str, nn.Parameter]:
        """Parameters the policy's loss depends on and the tapped hidden states do not.

        Args:
            batch: As for `parameters_in_front`, with labels.
        """
        batch = self._batch(batch)
        with _everything_requires_grad(self.policy):
            used = parameters_reached([policy_loss(self.policy, batch, seed=0)])
        return self._named(used - self._front(batch))

    def parameters_around(self, batch: Batch | None = None) -> dict[str, nn.Parameter]:
        """Parameters in front that the loss also depends on by ways that do not pass through the tap.

        Where the loss sends more tokens through a tapped layer than the tap sees (pi0_fast: the action tokens
        behind the prefix), the layer is such a way itself and everything in front of it counts.

        Args:
            batch: As for `parameters_behind`.
        """
        batch = self._batch(batch)
        with torch.no_grad():
            sizes = [value.shape for value in self._run(batch, Trace())]
        with _everything_requires_grad(self.policy), capture(self.policy, self._points, stop=False) as seen:
            loss = policy_loss(self.policy, batch, seed=0)
        barrier = [value for value, size in zip(seen.values, sizes, strict=True) if value.shape == size]
        return self._named(parameters_reached([loss], barrier) & self._front(batch))

    def describe(self) -> dict[str, Any]:
        """What a cache records so that a reader can tell whether its tap is the same. JSON values only."""
        return {
            "policy_type": self.adapter.policy_type,
            "layers": list(self.indices),
            "points": [[str(point) for point in layer] for layer in self.layers],
        }

    @property
    def _points(self) -> list[TapPoint]:
        return [point for layer in self.layers for point in layer]

    def _run(self, batch: Batch, trace: Trace) -> list[Tensor]:
        with anchor_mode(self.policy), capture(self.policy, self._points) as captured:
            self.adapter.run(self.policy, batch, trace)
        return captured.values

    def _front(self, batch: Batch) -> set[int]:
        with _everything_requires_grad(self.policy):
            hidden, _ = self.hidden(batch)
            return parameters_reached(hidden)

    def _batch(self, batch: Batch | None) -> Batch:
        return self.adapter.example_batch(self.policy) if batch is None else batch

    def _tokens(self, values: list[Tensor], layer: tuple[TapPoint, ...], batch: Batch) -> Tensor:
        if isinstance(self.adapter, OtherAdapter):
            return as_tokens(values[0], batch_first=self.batch_first)
        return self.adapter.tokens(self.policy, layer[0].path, values, batch)

    def _named(self, ids: set[int]) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if id(p) in ids}

    def _stack(self, pooled: list[Tensor]) -> Tensor:
        shapes = {tuple(layer.shape) for layer in pooled}
        if len(shapes) > 1:
            raise TapError(f"The tapped layers give different sizes {sorted(shapes)}; tap one layer at a time.")
        return torch.stack(pooled, dim=1)


def make_tap(
    policy: nn.Module,
    *,
    layers: Sequence[int] | None = None,
    path: str | None = None,
    batch_first: bool = True,
) -> Tap:
    """Tap a policy at some of its layers, or at any module.

    Args:
        policy: A LeRobot policy, as it is or inside PEFT or DistributedDataParallel.
        layers: Layer numbers, negative ones from the end: `(-2, -1)`. See the adapters for what they index.
        path: Instead of `layers`, the path of a module inside the LeRobot policy (without wrappers).
        batch_first: For `path` in a policy type without an adapter: whether the module gives [batch, tokens,
            dim] and not [tokens, batch, dim].

    Raises:
        TapError: If neither or both are given, a layer does not exist, or a path does not.
    """
    inner = base_policy(policy)
    adapter = adapter_for(policy)
    if (layers is None) == (path is None):
        raise TapError(f"`layers` is {layers} and `path` is {path!r}, expected exactly one of them.")
    if path is not None:
        resolve_module(inner, path)
        return Tap(policy, inner, adapter, ((TapPoint(path),),), (), batch_first)
    available = adapter.layers(inner)
    indices = tuple(_index(layer, len(available)) for layer in layers or ())
    if not indices or len(set(indices)) != len(indices):
        raise TapError(f"`layers` is {layers}, expected at least one layer and none twice.")
    return Tap(policy, inner, adapter, tuple(available[index] for index in indices), indices)


def freeze_behind_tap(tap: Tap, batch: Batch | None = None) -> dict[str, nn.Parameter]:
    """Stop every parameter behind the tap from training.

    Args:
        tap: Whose policy is changed in place.
        batch: As for `Tap.parameters_behind`.

    Returns:
        The parameters behind the tap, all of them frozen now.
    """
    behind = tap.parameters_behind(batch)
    for parameter in behind.values():
        parameter.requires_grad_(False)
    return behind


def _index(layer: int, count: int) -> int:
    if not -count <= layer < count:
        raise TapError(f"`layers` names {layer}, but there are {count}; expected {-count} to {count - 1}.")
    return layer % count


@contextmanager
def _everything_requires_grad(policy: nn.Module) -> Iterator[None]:
    before = [(p, p.requires_grad) for p in policy.parameters() if p.is_floating_point()]
    for parameter, _ in before:
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad():
            yield
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)
