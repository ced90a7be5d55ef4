# SPDX-License-Identifier: Apache-2.0
"""One run of `lerobot-craft merge`: writes the checkpoints, then tries them beside teacher and student where asked."""

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled
from lerobot.configs.policies import PreTrainedConfig
from tqdm import tqdm

from lerobot_craft.caching._source import open_dataset
from lerobot_craft.drift import Interval
from lerobot_craft.drift._checkpoints import check_dataset, one_checkpoint
from lerobot_craft.drift._record import interval_record
from lerobot_craft.drift._run import measure
from lerobot_craft.drift._settings import DriftSettings
from lerobot_craft.drift._table import columns
from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation._demonstrations import SEEDS_PER_RUN
from lerobot_craft.evaluation._success import TaskSuccess, wilson_interval
from lerobot_craft.evaluation._tasks import check_tasks
from lerobot_craft.merging._merge import Merged, merge_checkpoints
from lerobot_craft.merging._settings import MergeSettings
from lerobot_craft.policies import import_support_for

_NOT_FOUND = (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled)


@dataclass(frozen=True)
class Row:
    """One policy of the sweep.

    Attributes:
        name: What it is called in the table.
        alpha: Its share of the student.
        path: Its folder.
        drift: Its actions' drift from the teacher, if measured.
        successes: Its success by task, if tried.
    """

    name: str
    alpha: float
    path: Path
    drift: Interval | None = None
    successes: tuple[TaskSuccess, ...] = ()


def run(settings: MergeSettings) -> str:
    """Merge, try, write `merge.json` into the output folder and return the table.

    Raises:
        CraftError: If the checkpoints, the dataset or a task are not there, or do not fit.
    """
    check_tasks("tasks", settings.tasks)
    teacher, student = (
        _folder(path, flag)
        for path, flag in ((settings.teacher_path, "--teacher.path"), (settings.policy_path, "--policy.path"))
    )
    if settings.repo_id is not None:
        _check_dataset(_drift_settings([teacher], settings, settings.repo_id))
    merged = {
        alpha: merge_checkpoints(
            teacher, student, alpha, settings.folder(alpha), settings.modules, processors=settings.processors
        )
        for alpha in settings.alphas
    }
    rows = [
        Row("teacher", 0.0, teacher),
        *(Row(f"alpha {alpha:g}", alpha, done.path) for alpha, done in merged.items()),
        Row("student", 1.0, student),
    ]
    rows = _with_success(_with_drift(rows, settings), settings)
    _write(rows, settings)
    return "\n".join([*_written(merged), *_table(rows)]) + "\n"


def _folder(path: str, flag: str) -> Path:
    found = Path(one_checkpoint(path, flag).path)
    if found.is_dir():
        return found
    try:
        return Path(snapshot_download(path))
    except _NOT_FOUND as error:
        raise UsageError(
            f"`{flag}={path}` was not found: expected a folder or a Hub repository. ({type(error).__name__}: {error})"
        ) from error


def _drift_settings(paths: list[Path], settings: MergeSettings, repo_id: str) -> DriftSettings:
    return DriftSettings(
        teacher_path=str(paths[0]),
        policy_paths=tuple(map(str, paths)),
        repo_id=repo_id,
        root=settings.root,
        episodes=settings.episodes,
        revision=settings.revision,
        num_frames=settings.num_frames,
        batch_size=settings.batch_size,
        seed=settings.seed,
        device=settings.device,
    )


def _check_dataset(settings: DriftSettings) -> None:
    # Before anything is written: a second attempt would find the folders taken.
    import_support_for(settings.teacher_path)
    config = PreTrainedConfig.from_pretrained(settings.teacher_path)
    check_dataset(open_dataset(settings, config), config, settings.repo_id)


def _with_drift(rows: list[Row], settings: MergeSettings) -> list[Row]:
    if settings.repo_id is None:
        return rows
    measured = measure(_drift_settings([row.path for row in rows], settings, settings.repo_id))
    return [
        Row(row.name, row.alpha, row.path, drift.action.all) for row, drift in zip(rows, measured.drifts, strict=True)
    ]


def _with_success(rows: list[Row], settings: MergeSettings) -> list[Row]:
    if not settings.tasks:
        return rows
    from lerobot_craft.evaluation._rollout import Rollouts

    # One thread: faster for a small policy, and the same numbers however many cores there are.
    torch.set_num_threads(1)
    first = SEEDS_PER_RUN * settings.seed
    rollouts = Rollouts(range(first, first + settings.rollouts))
    longest = dict.fromkeys(settings.tasks, settings.max_steps)
    total = len(rows) * len(longest) * settings.rollouts
    with tqdm(total=total, desc="rollouts", unit="episode", leave=False) as bar:
        return [
            Row(row.name, row.alpha, row.path, row.drift, tuple(rollouts.success(row.path, longest, bar.update)))
            for row in rows
        ]


def _write(rows: list[Row], settings: MergeSettings) -> None:
    record = {
        "format": "lerobot-craft merge",
        "schema": 1,
        "version": version("lerobot-craft"),
        "modules": settings.modules,
        "processors": settings.processors,
        "rows": [
            {
                "name": row.name,
                "alpha": row.alpha,
                "path": str(row.path),
                "drift": None if row.drift is None else interval_record(row.drift),
                "success": {success.task: list(success.outcomes) for success in row.successes},
            }
            for row in rows
        ],
    }
    partial = settings.output_dir / "merge.json.partial"
    partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    partial.replace(settings.output_dir / "merge.json")


def _written(merged: dict[float, Merged]) -> list[str]:
    lines = []
    for done in merged.values():
        kept = f", {done.kept} the student's" if done.kept else ""
        lines += [
            f"{done.path}  ({done.interpolated} tensors interpolated{kept})",
            *(f"  {note}" for note in done.notes),
        ]
    return lines


def _table(rows: list[Row]) -> list[str]:
    if rows[0].drift is None and not rows[0].successes:
        return []
    head = ["policy"]
    if rows[0].drift is not None:
        head += ["drift", ""]
    head += [success.task for success in rows[0].successes]
    if rows[0].successes:
        head += ["all", ""]
    return ["", *columns([head, *(_cells(row) for row in rows)])]


def _cells(row: Row) -> list[str]:
    cells = [row.name]
    if row.drift is not None:
        cells += [f"{row.drift.mean:.3f} σ", f"{row.drift.low:.3f}-{row.drift.high:.3f}"]
    if row.successes:
        ends = [end for success in row.successes for end in success.outcomes]
        low, high = wilson_interval(sum(ends), len(ends))
        cells += [f"{success.rate:.2f}" for success in row.successes]
        cells += [f"{sum(ends) / len(ends):.2f}", f"{low:.2f}-{high:.2f}"]
    return cells
