# SPDX-License-Identifier: Apache-2.0
"""The numbers of a drift measurement as JSON; its format is described in docs/drift.md."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lerobot_craft.drift._checkpoints import Checkpoint
from lerobot_craft.drift._intervals import Interval
from lerobot_craft.drift._measure import PolicyDrift
from lerobot_craft.drift._verdict import is_over, verdict, which_to_keep
from lerobot_craft.errors import RunError

FORMAT = "lerobot-craft drift"
SCHEMA = 1


@dataclass(frozen=True)
class Measured:
    """A whole measurement.

    Attributes:
        teacher: The teacher's path.
        policy_type: Its type.
        dataset: The dataset's id.
        episodes: How many episodes the frames are from.
        tasks: How many instructions they have.
        frames: How many frames.
        max_drift: The limit, if any.
        checkpoints: Which were compared.
        drifts: What was found for each.
    """

    teacher: str
    policy_type: str
    dataset: str
    episodes: int
    tasks: int
    frames: int
    max_drift: float | None
    checkpoints: tuple[Checkpoint, ...]
    drifts: tuple[PolicyDrift, ...]

    @property
    def keep(self) -> int | None:
        """The place of the checkpoint to keep."""
        return which_to_keep(self.drifts, self.max_drift)


def write_record(measured: Measured, path: Path) -> None:
    """Write a measurement; the file is whole or not there.

    Raises:
        RunError: If it cannot be written.
    """
    text = json.dumps(as_record(measured), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise RunError(
            f"`--output={path}` could not be written ({error.strerror}); the numbers stand above."
        ) from error


def as_record(measured: Measured) -> dict[str, Any]:
    """Return a measurement as JSON values; a number that is not finite becomes null."""
    keep = measured.keep
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "version": version("lerobot-craft"),
        "teacher": measured.teacher,
        "dataset": measured.dataset,
        "policy_type": measured.policy_type,
        "episodes": measured.episodes,
        "frames": measured.frames,
        "max_drift": measured.max_drift,
        "keep": None if keep is None else measured.checkpoints[keep].path,
        "checkpoints": [
            _row(checkpoint, drift, measured.max_drift)
            for checkpoint, drift in zip(measured.checkpoints, measured.drifts, strict=True)
        ],
    }


def _row(checkpoint: Checkpoint, drift: PolicyDrift, max_drift: float | None) -> dict[str, Any]:
    language, kl = drift.language, drift.token_kl
    return {
        "path": checkpoint.path,
        "step": checkpoint.step,
        "verdict": verdict(drift, max_drift),
        "over": is_over(drift, max_drift),
        "action": {
            "all": interval_record(drift.action.all),
            "by_task": _intervals(drift.action.by_task),
            "by_joint": _intervals(drift.action.by_joint),
        },
        "token_kl": None if kl is None else {"all": interval_record(kl.all), "by_task": _intervals(kl.by_task)},
        "features": [
            {
                "layer": layer.layer,
                "relative_l2": interval_record(layer.relative_l2),
                "cosine": interval_record(layer.cosine),
                "cka": _number(layer.cka),
            }
            for layer in drift.features
        ],
        "language": None
        if language is None
        else {
            "teacher": interval_record(language.teacher),
            "student": interval_record(language.student),
            "ratio": _number(language.ratio),
            "ignores": language.ignores,
        },
        "weights": {"all": interval_record(drift.weights)},
        "statistics": {"all": interval_record(drift.statistics)},
    }


def _intervals(intervals: Mapping[str, Interval]) -> dict[str, Any]:
    return {name: interval_record(interval) for name, interval in intervals.items()}


def interval_record(interval: Interval) -> dict[str, float | None]:
    """Return an interval as JSON values."""
    return {"mean": _number(interval.mean), "low": _number(interval.low), "high": _number(interval.high)}


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
