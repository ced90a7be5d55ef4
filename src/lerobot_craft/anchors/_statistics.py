# SPDX-License-Identifier: Apache-2.0
"""How far the teacher's hidden targets spread over the anchors: the unit of relative drift. No loss."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lerobot_craft.anchors._fingerprint import Json

type Chunks = Iterable[tuple[Tensor, Tensor | None]]

# A vector whose standard deviation is under 1 % of its size carries rounding rather than information: it is
# measured against 1 % of its size, so that float16 rounding alone stays under a relative drift of 0.001.
_SMALLEST_RELATIVE_VARIANCE = 1e-4


@dataclass(frozen=True)
class TargetStatistics:
    """Spread of a target over the anchors, about its mean at each position, averaged over the hidden size.

    Attributes:
        variance: Mean squared deviation, the unit of a relative `mse`. [], [layers, vectors], or [layers]
            when all tokens are kept.
        absolute_deviation: Mean absolute deviation, the unit of a relative `l1`. The same shape.
        mean_square: Of the values themselves. The same shape.
    """

    variance: Tensor
    absolute_deviation: Tensor
    mean_square: Tensor

    def scale(self, loss: str) -> Tensor:
        """Return what a raw loss is divided by to be relative; `cosine` has no unit and gets 1."""
        floor = self.mean_square * _SMALLEST_RELATIVE_VARIANCE
        if loss == "mse":
            return self.variance.maximum(floor).clamp_min(1e-30)
        if loss == "l1":
            return self.absolute_deviation.maximum(floor.sqrt()).clamp_min(1e-15)
        return torch.ones((), dtype=torch.float64)

    def to_json(self) -> dict[str, Json]:
        """Return the statistics as JSON."""
        return {
            "variance": self.variance.tolist(),
            "absolute_deviation": self.absolute_deviation.tolist(),
            "mean_square": self.mean_square.tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TargetStatistics":
        """Read what `to_json` wrote."""
        names = ("variance", "absolute_deviation", "mean_square")
        return cls(*(torch.tensor(data[name], dtype=torch.float64) for name in names))


def measure_statistics(chunks: Callable[[], Chunks], *, per_layer: bool) -> TargetStatistics:
    """Measure a target's spread in two passes over its values, in float64 and in the memory of one anchor.

    The mean is taken per position, so that 1 in relative units is a student that ignores what it sees, and
    not one that confuses an image token with a text token.

    Args:
        chunks: Gives values [n, …, dim] and their mask [n, tokens] or None, piece by piece, each time anew.
        per_layer: Average over tokens too, as is right when all tokens are kept.
    """
    total, count = _sums(chunks(), lambda values: (values,))
    mean = total[0] / count.clamp_min(1.0)
    sums, _ = _sums(chunks(), lambda values: ((values - mean).square(), (values - mean).abs(), values.square()))
    return TargetStatistics(*(_average(part, count, per_layer=per_layer) for part in sums))


def _sums(chunks: Chunks, terms: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[list[Tensor], Tensor]:
    sums: list[Tensor] = []
    count = torch.zeros((), dtype=torch.float64)
    for raw, mask in chunks:
        values = raw.to(torch.float64)
        # Broadcast over layers (in front) and the hidden size (behind): [n, 1, tokens, 1], or [n, 1, 1, 1].
        weight = torch.ones(len(values), *[1] * (values.ndim - 1), dtype=torch.float64)
        if mask is not None:
            weight = mask.to(torch.float64)[:, None, :, None]
        parts = [(term * weight).sum(0) for term in terms(values)]
        sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
        count = count + weight.sum(0)
    return sums, count


def _average(part: Tensor, count: Tensor, *, per_layer: bool) -> Tensor:
    if part.ndim == 1:
        return part.mean() / count.reshape(())
    if per_layer:
        positions = count.expand(part.shape[0], part.shape[1], 1)
        return part.mean(-1).sum(1) / positions.sum((1, 2)).clamp_min(1.0)
    return (part / count.clamp_min(1.0)).mean(-1)
