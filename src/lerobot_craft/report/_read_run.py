# SPDX-License-Identifier: Apache-2.0
"""A training run from its folder, however far it came; draws nothing."""

import json
from pathlib import Path
from typing import Any

from lerobot_craft.errors import UsageError
from lerobot_craft.report._fields import Fields, check_schema, read_json
from lerobot_craft.report._model import NormalizationRow, TrainingRun
from lerobot_craft.report._names import title
from lerobot_craft.report._text import same

LOG = "metrics.jsonl"
RECORD = "run.json"
LAST = Path("checkpoints/last")


def read_run(folder: Path, method: str | None = None, student: str | None = None) -> TrainingRun:
    """Return the run in a folder.

    Args:
        folder: The folder.
        method: Name of the method it was trained by, where that is known; its folder's name stands for it otherwise.
        student: Which of a comparison's students it trained, if it is one of them.

    Raises:
        UsageError: If it logged nothing, or its files are damaged or from a newer version.
    """
    record = read_json(folder / RECORD) if (folder / RECORD).is_file() else Fields({}, str(folder / RECORD))
    if record.values:
        check_schema(record)
    rows, damaged = _rows(folder / LOG)
    # A run of a demo too short for its log still has its command, settings and statistics to show.
    if not rows and method is None:
        raise UsageError(
            f"`{folder}` is a run that logged no step: it stopped before its first line, or was started with "
            "`--log_freq=0`. Train on, with a `--log_freq` below the number of steps."
        )
    return TrainingRun(
        path=folder,
        name=method or folder.resolve().name,
        title=title(method) if method is not None else same(folder.resolve().name),
        rows=rows,
        record=record.values,
        steps=record.whole_or_none("steps") or _saved_steps(folder),
        settings=_settings(record),
        normalization=tuple(_normalization(one) for one in record.children("normalization")),
        best=_best(folder),
        anchor_bytes=_folder_bytes(record.text_or_none("anchor_cache_dir")),
        checkpoint_bytes=_weights_bytes(folder / LAST / "pretrained_model"),
        damaged_lines=damaged,
        student=student,
    )


def _rows(path: Path) -> tuple[tuple[dict[str, Any], ...], int]:
    """Return the steps of a log in order, and how many of its lines could not be read: a kill cuts the last one."""
    rows: dict[int, dict[str, Any]] = {}
    damaged = 0
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            damaged += 1
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and "event" not in row:
            # A plain run that was resumed logs the steps after its last checkpoint twice: the later line counts.
            rows[row["step"]] = row
    return tuple(rows[step] for step in sorted(rows)), damaged


def _settings(record: Fields) -> dict[str, tuple[Any, Any]]:
    return {
        name: (one.values.get("value"), one.values.get("default")) for name, one in record.child("settings").named()
    }


def _saved_steps(folder: Path) -> int | None:
    path = folder / LAST / "pretrained_model" / "train_config.json"
    return read_json(path).whole_or_none("steps") if path.is_file() else None


def _normalization(fields: Fields) -> NormalizationRow:
    return NormalizationRow(
        feature=fields.text("feature"),
        mode=fields.text("mode"),
        dimensions=int(fields.number("dimensions")),
        reach=fields.number("reach"),
        outside=fields.number("outside"),
        widened=tuple(fields.values.get("widened") or ()),
        added=bool(fields.values.get("added")),
    )


def _best(folder: Path) -> dict[str, Any] | None:
    path = folder / "checkpoints" / "best.json"
    return read_json(path).values if path.is_file() else None


def _folder_bytes(folder: str | None) -> int | None:
    if folder is None or not Path(folder).is_dir():
        return None
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _weights_bytes(folder: Path) -> int | None:
    found = [path.stat().st_size for path in folder.glob("*.safetensors")] if folder.is_dir() else []
    return sum(found) or None
