# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a checkpoint mean, in one sentence, and which checkpoint to keep; measures nothing."""

import math
from collections.abc import Sequence

from lerobot_craft.drift._measure import PolicyDrift

# Where one cause alone does so many times what the other does, it is named as the main one.
MAIN_CAUSE = 2.0


def is_over(drift: PolicyDrift, max_drift: float | None) -> bool:
    """Return whether the actions drifted farther than the limit; what is not finite is over any."""
    if max_drift is None:
        return False
    return not drift.action.all.mean <= max_drift


def which_to_keep(drifts: Sequence[PolicyDrift], max_drift: float | None) -> int | None:
    """Return the place of the last checkpoint within the limit, or None where there is none or no limit.

    The last, because drift says nothing of the new task, and of two checkpoints that remember enough the one that has
    trained longer has learned more.
    """
    if max_drift is None:
        return None
    return max((place for place, drift in enumerate(drifts) if not is_over(drift, max_drift)), default=None)


def verdict(drift: PolicyDrift, max_drift: float | None) -> str:
    """Return one sentence."""
    mean = drift.action.all.mean
    if not math.isfinite(mean):
        return "Its actions are not finite numbers: this checkpoint is broken."
    if mean == 0:
        return f"Its actions are exactly the teacher's{', though its layers have moved' if _moved(drift) else ''}."
    parts = [f"Its actions are {mean:.2g} σ from the teacher's, {_cause(drift)}"]
    if len(drift.action.by_task) > 1:
        task, worst = max(drift.action.by_task.items(), key=lambda item: item[1].mean)
        parts.append(f'the most on "{task}" ({worst.mean:.2g})')
    if drift.language is not None and drift.language.ignores and drift.language.ratio is not None:
        parts.append(
            f"it ignores the instruction: another one moves it {drift.language.ratio:.0%} as far as the teacher"
        )
    if is_over(drift, max_drift):
        parts.append(f"over the limit of {max_drift:g}")
    return "; ".join(parts) + "."


def _moved(drift: PolicyDrift) -> bool:
    return any(layer.relative_l2.mean > 0 for layer in drift.features)


def _cause(drift: PolicyDrift) -> str:
    weights, statistics = drift.weights.mean, drift.statistics.mean
    if weights == 0:
        return "all of it by its statistics: behind the teacher's processors its weights drift by 0"
    if statistics == 0:
        return "all of it by its weights"
    alone = f"(weights alone {weights:.2g}, statistics alone {statistics:.2g})"
    if statistics > MAIN_CAUSE * weights:
        return f"mostly by its statistics {alone}"
    if weights > MAIN_CAUSE * statistics:
        return f"mostly by its weights {alone}"
    return f"by its weights and its statistics {alone}"
