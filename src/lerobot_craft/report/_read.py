# SPDX-License-Identifier: Apache-2.0
"""From paths to the material of a report: finds out what each path is; draws nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lerobot_craft.demo._methods import METHODS
from lerobot_craft.demo._record import RECORD as DEMO_RECORD
from lerobot_craft.errors import UsageError
from lerobot_craft.report._fields import read_json
from lerobot_craft.report._model import Comparison, Material, TrainingRun
from lerobot_craft.report._read_comparison import DEMO_NAMES, RESULTS, read_comparison, read_demo
from lerobot_craft.report._read_comparison import FORMAT as COMPARISON
from lerobot_craft.report._read_drift import FORMAT as DRIFT
from lerobot_craft.report._read_drift import read_drift
from lerobot_craft.report._read_run import LOG, RECORD, read_run

EXPECTED = (
    f"a training run's folder (with `{LOG}`), a demo's (with `{DEMO_RECORD}`), a comparison's (with `{RESULTS}`), or "
    "the JSON file of `lerobot-craft drift`"
)


def read(paths: Sequence[Path]) -> Material:
    """Return what the paths hold, put together.

    Args:
        paths: Folders of runs, demos and comparisons, and files of the drift command, in any number and mix.

    Raises:
        UsageError: If there is no path, or one of them is none of these, is empty, damaged or from a newer version.
    """
    if not paths:
        raise UsageError(f"`PATH` is missing: expected {EXPECTED}, as in `lerobot-craft report outputs/demo`.")
    material = Material()
    for path in dict.fromkeys(paths):
        if path.is_dir():
            _folder(path, material)
        elif path.is_file():
            _file(path, material)
        else:
            raise UsageError(f"`{path}` does not exist: expected {EXPECTED}.")
    return material


def _folder(folder: Path, material: Material) -> None:
    if (folder / DEMO_RECORD).is_file():
        demo = read_demo(folder)
        material.comparisons.append(demo)
        measured = {method.name for method in demo.methods}
        for name in METHODS:
            method, run = DEMO_NAMES.get(name, name), folder / "runs" / name
            if method in measured and (run / RECORD).is_file():
                material.runs.append(read_run(run, method))
    elif (folder / RESULTS).is_file():
        _file(folder / RESULTS, material)
    elif (folder / LOG).is_file() or (folder / RECORD).is_file() or (folder / "checkpoints").is_dir():
        material.runs.append(read_run(folder))
    elif not any(folder.iterdir()):
        raise UsageError(f"`{folder}` is empty: expected {EXPECTED}.")
    else:
        raise UsageError(f"`{folder}` holds nothing a report is made from: expected {EXPECTED}.")


def _first_runs(comparison: Comparison) -> Iterator[TrainingRun]:
    """Go through the training runs of each method's first student, as far as they are still on disk."""
    for method in comparison.methods:
        for student in method.runs[:1]:
            checkpoint = student.stages[0].checkpoint if student.stages else None
            # A checkpoint is RUN/checkpoints/STEP/pretrained_model.
            folder = None if checkpoint is None else Path(checkpoint).parent.parent.parent
            if folder is not None and (folder / LOG).is_file():
                yield read_run(folder, method.name, f"{student.problem}, seed {student.seed}")


def _file(path: Path, material: Material) -> None:
    if path.name in (LOG, RECORD, DEMO_RECORD):
        _folder(path.parent, material)
        return
    kind = read_json(path).values.get("format")
    if kind == COMPARISON:
        comparison = read_comparison(path)
        material.comparisons.append(comparison)
        material.runs.extend(_first_runs(comparison))
    elif kind == DRIFT:
        material.drifts.append(read_drift(path))
    elif path.name == RESULTS and (path.parent / DEMO_RECORD).is_file():
        _folder(path.parent, material)
    else:
        got = "no `format`" if kind is None else f"`format` {kind!r}"
        raise UsageError(f"`{path}` has {got}: expected {EXPECTED}.")
