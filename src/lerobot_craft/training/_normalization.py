# SPDX-License-Identifier: Apache-2.0
"""The normalisation guard: dimensions the teacher never saw move are widened, and a table says how the new data lies.

Replacing the statistics, as LeRobot does when it fine-tunes, breaks the old tasks before any weight has moved. Keeping
them blindly breaks the new one where a dimension was as good as constant for the teacher: its scale is near 0, so new
data that moves it becomes 10² to 10⁶ in normalised units, and the student learns nothing else. Loads no processor and
touches no weight.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from lerobot.configs.types import FeatureType, NormalizationMode
from torch import Tensor

from lerobot_craft.errors import UsageError
from lerobot_craft.training._compat import (
    NormalizerProcessorStep,
    PolicyProcessorPipeline,
    UnnormalizerProcessorStep,
)

# Farther than this many units of its scale, the teacher has hardly seen the dimension move. Widening stretches
# what the teacher gives out as well, so an action has to be farther away.
CONSTANT_BEYOND = 1e2
CONSTANT_ACTION_BEYOND = 1e3
TINY = 1e-12

Statistics = Mapping[str, Mapping[str, Any]]
type NormalizationStep = NormalizerProcessorStep | UnnormalizerProcessorStep

# Which two statistics a mode places at its centre-and-scale, or at -1 and 1.
ENDS = {
    NormalizationMode.MIN_MAX: ("min", "max"),
    NormalizationMode.QUANTILES: ("q01", "q99"),
    NormalizationMode.QUANTILE10: ("q10", "q90"),
}


class FeatureRow(NamedTuple):
    """How one feature of the new data lies in the teacher's units.

    Attributes:
        feature: Name of the feature.
        mode: Normalisation mode.
        dimensions: How many numbers it has.
        reach: Largest distance of the new data from the teacher's centre, in the teacher's scale, after widening.
        outside: Share of dimensions whose new data leaves the teacher's own range.
        widened: Indices of dimensions that were as good as constant for the teacher and were widened.
        added: Whether the teacher had no statistics for it, so that the new dataset's were taken.
    """

    feature: str
    mode: str
    dimensions: int
    reach: float
    outside: float
    widened: tuple[int, ...]
    added: bool


def guard(
    preprocessor: PolicyProcessorPipeline, postprocessor: PolicyProcessorPipeline, dataset_stats: Statistics
) -> list[FeatureRow]:
    """Widen what hardly moved for the teacher, fill in what it never had, in place; return one row per feature.

    Args:
        preprocessor: The teacher's, with its own statistics.
        postprocessor: The teacher's.
        dataset_stats: Statistics of the new data, by the names the policy uses.

    Raises:
        UsageError: If a feature has another number of dimensions than the teacher knew.
    """
    rows: dict[str, FeatureRow] = {}
    for step in normalization_steps(preprocessor, postprocessor):
        state = step.state_dict()
        for key, feature in step.features.items():
            mode = step.norm_map.get(feature.type, NormalizationMode.IDENTITY)
            if mode is NormalizationMode.IDENTITY or key not in dataset_stats:
                continue
            teacher = {name: state[f"{key}.{name}"] for name in _names(mode) if f"{key}.{name}" in state}
            row, changed = _fit(key, mode, teacher, dataset_stats[key], _limit(feature.type))
            rows.setdefault(key, row)
            state.update({f"{key}.{name}": value for name, value in changed.items()})
        step.load_state_dict(state)
    return list(rows.values())


def table(rows: list[FeatureRow]) -> str:
    """Return the rows as text."""
    lines = ["Normalization: the teacher's statistics are kept; the new data in the teacher's units:"]
    width = max((len(row.feature) for row in rows), default=0)
    for row in rows:
        notes = []
        if row.added:
            notes.append("unknown to the teacher: the new dataset's statistics")
        if row.widened:
            notes.append(f"constant for the teacher, widened: dimension(s) {', '.join(map(str, row.widened))}")
        lines.append(
            f"  {row.feature:<{width}}  {row.mode:<10} {row.dimensions:>4} dims  reaches {row.reach:8.2f}  "
            f"{100 * row.outside:3.0f} % of dims outside  {'; '.join(notes)}".rstrip()
        )
    if not rows:
        lines.append("  no feature is normalised")
    return "\n".join(lines)


def normalization_steps(*pipelines: PolicyProcessorPipeline) -> Iterator[NormalizationStep]:
    """Yield the steps that hold statistics."""
    for pipeline in pipelines:
        for step in pipeline.steps:
            if isinstance(step, NormalizerProcessorStep | UnnormalizerProcessorStep):
                yield step


def _names(mode: NormalizationMode) -> tuple[str, ...]:
    return ("mean", "std", "min", "max") if mode is NormalizationMode.MEAN_STD else (*ENDS[mode], "min", "max")


def _limit(kind: FeatureType) -> float:
    if kind is FeatureType.VISUAL:
        # Images keep their statistics: pixel values are bounded, so they cannot run away.
        return math.inf
    return CONSTANT_ACTION_BEYOND if kind is FeatureType.ACTION else CONSTANT_BEYOND


def _fit(
    key: str, mode: NormalizationMode, teacher: dict[str, Tensor], new: Mapping[str, Any], limit: float
) -> tuple[FeatureRow, dict[str, Tensor]]:
    needed = _names(mode)[:2]
    fresh = {name: torch.as_tensor(new[name], dtype=torch.float32) for name in _names(mode) if name in new}
    if any(name not in teacher for name in needed):
        row = FeatureRow(key, mode.value, fresh[needed[0]].numel(), 1.0, 0.0, (), added=True)
        return row, fresh
    shape = teacher[needed[0]].shape
    if teacher[needed[0]].numel() != fresh[needed[0]].numel():
        raise UsageError(
            f"`{key}` has {fresh[needed[0]].numel()} number(s) in the new dataset and {teacher[needed[0]].numel()} for "
            "the teacher, so the teacher's statistics cannot be kept: pass `--craft.normalization=dataset`, and expect "
            "the old tasks to break."
        )
    centre, scale = _centre_and_scale(mode, teacher)
    low, high = fresh.get("min", fresh[needed[0]]).reshape(-1), fresh.get("max", fresh[needed[1]]).reshape(-1)
    deviation = torch.maximum((low - centre).abs(), (high - centre).abs())
    # Not a product: infinity times a scale of 0 is no number.
    constant = deviation / scale.clamp_min(TINY) > limit
    changed = _widened(mode, teacher, constant, deviation, shape) if bool(constant.any()) else {}
    scale = torch.where(constant, deviation, scale)
    row = FeatureRow(
        feature=key,
        mode=mode.value,
        dimensions=centre.numel(),
        reach=float((deviation / scale.clamp_min(TINY)).max()),
        outside=_share_outside(mode, teacher, low, high),
        widened=tuple(constant.nonzero().flatten().tolist()),
        added=False,
    )
    return row, changed


def _centre_and_scale(mode: NormalizationMode, teacher: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    if mode is NormalizationMode.MEAN_STD:
        return teacher["mean"].reshape(-1), teacher["std"].reshape(-1)
    low, high = (teacher[name].reshape(-1) for name in ENDS[mode])
    return (low + high) / 2, (high - low) / 2


def _widened(
    mode: NormalizationMode, teacher: dict[str, Tensor], constant: Tensor, deviation: Tensor, shape: torch.Size
) -> dict[str, Tensor]:
    if mode is NormalizationMode.MEAN_STD:
        std = torch.where(constant, deviation, teacher["std"].reshape(-1))
        return {"std": std.reshape(shape)}
    low_name, high_name = ENDS[mode]
    low, high = teacher[low_name].reshape(-1), teacher[high_name].reshape(-1)
    centre = (low + high) / 2
    # What never moved is at -1 under these modes and has to stay there; what moved a little stays about its centre.
    still = high == low
    wide_low = torch.where(still, low, centre - deviation)
    wide_high = wide_low + 2 * deviation
    return {
        low_name: torch.where(constant, wide_low, low).reshape(shape),
        high_name: torch.where(constant, wide_high, high).reshape(shape),
    }


def _share_outside(mode: NormalizationMode, teacher: dict[str, Tensor], low: Tensor, high: Tensor) -> float:
    if "min" in teacher and "max" in teacher:
        bottom, top = teacher["min"].reshape(-1), teacher["max"].reshape(-1)
    else:
        centre, scale = _centre_and_scale(mode, teacher)
        reach = 3 * scale if mode is NormalizationMode.MEAN_STD else scale
        bottom, top = centre - reach, centre + reach
    return float(((low < bottom) | (high > top)).float().mean())
