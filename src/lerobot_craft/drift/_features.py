# SPDX-License-Identifier: Apache-2.0
"""How far the hidden states of two policies are apart, layer by layer; both see the same preprocessed batch."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lerobot_craft.caching._teacher import Teacher
from lerobot_craft.drift._frames import Batch, Frames
from lerobot_craft.drift._intervals import Interval, bootstrap
from lerobot_craft.policies import Tap, adapter_for, base_policy, make_tap
from lerobot_craft.taps import TokenLayout, pool


@dataclass(frozen=True)
class LayerDrift:
    """How far one layer has moved.

    Attributes:
        layer: Its name.
        relative_l2: ‖student − teacher‖ / ‖teacher‖ over the tokens of a frame.
        cosine: Mean over a frame's tokens of the cosine between the two.
        cka: Linear CKA (Kornblith et al. 2019) of the frames' mean tokens: whether frames that were alike still are,
            however the space has turned. None where one policy gives every frame the same.
    """

    layer: str
    relative_l2: Interval
    cosine: Interval
    cka: float | None


def tap_every_layer(policy: Teacher) -> Tap:
    """Return a tap on all layers that the adapter of the policy's type knows.

    Raises:
        TapError: If it knows none.
    """
    layers = adapter_for(policy.policy).layers(base_policy(policy.policy))
    return make_tap(policy.policy, layers=range(len(layers)))


@dataclass
class FeatureDrift:
    """Collects what two taps give, batch by batch.

    Attributes:
        teacher: The teacher's tap.
        student: The student's.
    """

    teacher: Tap
    student: Tap
    _norms: list[Tensor] = field(default_factory=list)
    _cosines: list[Tensor] = field(default_factory=list)
    _means: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """Run both policies on a preprocessed batch."""
        with torch.no_grad():
            known, layout = self.teacher.hidden(batch)
            moved, _ = self.student.hidden(batch)
        pairs = list(zip(known, moved, strict=True))
        self._norms.append(torch.stack([_relative_l2(one, other, layout) for one, other in pairs], dim=1))
        self._cosines.append(torch.stack([_cosine(one, other, layout) for one, other in pairs], dim=1))
        self._means.append((_pooled(known, layout), _pooled(moved, layout)))

    def layers(self, frames: Frames, seed: int) -> tuple[LayerDrift, ...]:
        """Return the drift of each layer over all that was added."""
        norms = bootstrap(torch.cat(self._norms), frames.episodes, seed)
        cosines = bootstrap(torch.cat(self._cosines), frames.episodes, seed)
        found = []
        for layer in range(len(norms)):
            known = torch.cat([means[layer] for means, _ in self._means])
            moved = torch.cat([means[layer] for _, means in self._means])
            found.append(LayerDrift(f"layer {layer}", norms[layer], cosines[layer], linear_cka(known, moved)))
        return tuple(found)


def linear_cka(one: Tensor, other: Tensor) -> float | None:
    """Return linear CKA of two sets of features [frames, dim], or None where one of them does not vary."""
    grams = []
    for features in (one, other):
        centred = features.double() - features.double().mean(dim=0)
        gram = centred @ centred.T
        if not float(gram.norm()) > 0:
            return None
        grams.append(gram / gram.norm())
    # The same as their inner product, but exactly 1 for equal ones.
    return float(1 - (grams[0] - grams[1]).square().sum() / 2)


def _relative_l2(known: Tensor, moved: Tensor, layout: TokenLayout) -> Tensor:
    outside = ~layout.valid[..., None]
    gap = (moved.float() - known.float()).masked_fill(outside, 0).flatten(1).norm(dim=1)
    size = known.float().masked_fill(outside, 0).flatten(1).norm(dim=1)
    relative: Tensor = gap / size.clamp(min=torch.finfo(torch.float32).tiny)
    return relative.cpu()


def _cosine(known: Tensor, moved: Tensor, layout: TokenLayout) -> Tensor:
    one, other = (normalize(hidden.float(), dim=-1) for hidden in (known, moved))
    # The same as their inner product, but exactly 1 for equal ones.
    cosine = 1 - (one - other).square().sum(dim=-1) / 2
    return (cosine.masked_fill(~layout.valid, 0).sum(dim=1) / layout.lengths).cpu()


def _pooled(hidden: list[Tensor], layout: TokenLayout) -> list[Tensor]:
    return [pool(layer, layout, "mean_masked").cpu() for layer in hidden]
