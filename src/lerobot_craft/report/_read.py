# SPDX-License-Identifier: Apache-2.0
"""From paths to the material of a report: finds out what each path is; draws nothing."""

from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.demo._record import RECORD as DEMO_RECORD
from lerobot_craft.errors import UsageError
from lerobot_craft.report._fields import read_json
from lerobot_craft.report._model import Material
from lerobot_craft.report._read_comparison import FORMAT as COMPARISON
from lerobot_craft.report._read_comparison import RESULTS, read_comparison, read_demo
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
        trained = [folder / "runs" / method.name for method in demo.methods]
        material.runs.extend(read_run(run) for run in trained if (run / LOG).is_file())
    elif (folder / RESULTS).is_file():
        _file(folder / RESULTS, material)
    elif (folder / LOG).is_file() or (folder / RECORD).is_file() or (folder / "checkpoints").is_dir():
        material.runs.append(read_run(folder))
    elif not any(folder.iterdir()):
        raise UsageError(f"`{folder}` is empty: expected {EXPECTED}.")
    else:
        raise UsageError(f"`{folder}` holds nothing a report is made from: expected {EXPECTED}.")


def _file(path: Path, material: Material) -> None:
    if path.name in (LOG, RECORD, DEMO_RECORD):
        _folder(path.parent, material)
        return
    kind = read_json(path).values.get("format")
    if kind == COMPARISON:
        material.comparisons.append(read_comparison(path))
    elif kind == DRIFT:
        material.drifts.append(read_drift(path))
    elif path.name == RESULTS and (path.parent / DEMO_RECORD).is_file():
        _folder(path.parent, material)
    else:
        got = "no `format`" if kind is None else f"`format` {kind!r}"
        raise UsageError(f"`{path}` has {got}: expected {EXPECTED}.")
