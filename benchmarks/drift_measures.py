# SPDX-License-Identifier: Apache-2.0
"""Which offline distance between two policies tells best how much success was lost: every student of a comparison.

python benchmarks/drift_measures.py outputs/all/everything

Reads the comparison's checkpoints and its states that no training has seen; needs no simulator. Each measure is ranked
against the success that its students lost, over every old task of every run, over runs, and one task at a time.
"""

import json
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from _figures import parser, write_figures
from lerobot_craft.caching._teacher import load_teacher
from lerobot_craft.drift import choose_frames
from lerobot_craft.drift._actions import action_units, answers
from lerobot_craft.evaluation import instruction

# ACT's chunk has ten actions, of which five are executed before it is asked again.
EXECUTED = 5

type Measure = Callable[[Tensor, Tensor, Tensor], float]
type Point = tuple[str, int, str, str]


def per_frame(teacher: Tensor, student: Tensor, scale: Tensor) -> Tensor:
    """Return each frame's root mean square difference over steps and joints, in units of `scale`."""
    return ((teacher - student) / scale).square().mean(dim=(1, 2)).sqrt()


def limited(actions: Tensor) -> Tensor:
    """Return what Meta-World does with an action: it cuts it at -1 and 1."""
    return actions.clamp(-1.0, 1.0)


# Teacher's actions, student's actions [frames, chunk, joints], the dataset's standard deviations [joints].
MEASURES: dict[str, Measure] = {
    "mean over frames (`lerobot-craft drift`)": lambda t, s, u: float(per_frame(t, s, u).mean()),
    "executed actions only": lambda t, s, u: float(per_frame(t[:, :EXECUTED], s[:, :EXECUTED], u).mean()),
    "actions cut at the robot's limits": lambda t, s, u: float(per_frame(limited(t), limited(s), u).mean()),
    "in the task's own standard deviations": lambda t, s, u: float(
        per_frame(limited(t), limited(s), limited(t).flatten(0, 1).std(dim=0).clamp_min(0.01 * float(u.max()))).mean()
    ),
    "median over frames": lambda t, s, u: float(per_frame(limited(t), limited(s), u).median()),
    "90th percentile of frames": lambda t, s, u: float(per_frame(limited(t), limited(s), u).quantile(0.9)),
    "10th percentile of frames": lambda t, s, u: float(per_frame(limited(t), limited(s), u).quantile(0.1)),
    "mean difference, errors that cancel left out": lambda t, s, u: float(
        ((limited(t) - limited(s)).mean(dim=(0, 1)) / u).square().mean().sqrt()
    ),
    "worst joint": lambda t, s, u: float(((limited(t) - limited(s)) / u).square().mean(dim=1).sqrt().mean(dim=0).max()),
    "gripper left out": lambda t, s, u: float(per_frame(limited(t)[..., :3], limited(s)[..., :3], u[:3]).mean()),
}


def measure(results: dict[str, Any], root: Path) -> tuple[dict[str, dict[Point, float]], dict[Point, float]]:
    """Return each measure, and the lost success, of every old task of every run."""
    found: dict[str, dict[Point, float]] = {name: {} for name in MEASURES}
    lost: dict[Point, float] = {}
    once = {row["command"]: row for row in results["methods"].values()}.values()
    for before in results["teacher"]["runs"]:
        problem, seed = before["problem"], before["seed"]
        place = root / problem / f"seed_{seed}"
        dataset = LeRobotDataset("craft-compare/probe", root=place / "data" / "probe")
        frames = choose_frames(dataset, 400, 0, 64)
        units = action_units(dataset).scale
        teacher = _actions(place / "teacher/checkpoints/last/pretrained_model", frames)
        for row in once:
            [run] = [one for one in row["runs"] if (one["problem"], one["seed"]) == (problem, seed)]
            stage = run["stages"][0]
            student = _actions(Path(stage["checkpoint"]), frames)
            for task in stage["drift_by_task"]:
                rows = [n for n, name in enumerate(frames.tasks) if name == instruction(task)]
                point = (problem, seed, row["title"], task)
                lost[point] = before["success_by_task"][task] - stage["success_by_task"][task]
                for name, one in MEASURES.items():
                    found[name][point] = one(teacher[rows], student[rows], units)
    return found, lost


def _actions(path: Path, frames: Any) -> Tensor:  # noqa: ANN401 (frames of the package)
    with redirect_stdout(StringIO()):
        return answers(load_teacher(str(path), "cpu"), frames, 0)


def ranked(values: dict[Point, float], lost: dict[Point, float]) -> tuple[float, float, float, float]:
    """Return Spearman's coefficient over points, over runs, and by task: mean and least."""
    points = list(lost)
    whole = spearmanr([values[p] for p in points], [lost[p] for p in points]).statistic
    runs: dict[tuple[str, int, str], list[Point]] = defaultdict(list)
    tasks: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        runs[point[:3]].append(point)
        tasks[point[0], point[3]].append(point)
    means = [[statistics.fmean(one[p] for p in group) for group in runs.values()] for one in (values, lost)]
    each = [spearmanr([values[p] for p in g], [lost[p] for p in g]).statistic for g in tasks.values()]
    return float(whole), float(spearmanr(*means).statistic), statistics.fmean(each), float(min(each))


def ceiling(lost: dict[Point, float]) -> float:
    """Return the coefficient of a measure that orders unequal losses without a fault, and equal ones at random."""
    values = np.array(list(lost.values()))
    noise = np.random.default_rng(0).uniform(0, 1e-6, len(values))
    return float(spearmanr(rankdata(values + noise), values).statistic)


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("root", type=Path, help="folder of a comparison")
    options.add_argument("--results", type=Path, help="its results, where they lie elsewhere")
    given = options.parse_args()
    torch.set_num_threads(1)
    results = json.loads((given.results or given.root / "results.json").read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, lost = measure(results, given.root)
    rows = {name: ranked(values, lost) for name, values in found.items()}
    print("| measure | all points | runs | one task: mean | one task: least |\n|---|---|---|---|---|")
    for name, numbers in rows.items():
        print(f"| {name} | {' | '.join(f'{number:.2f}' for number in numbers)} |")
    print(f"\n{len(lost)} points; the ties among losses allow {ceiling(lost):.2f} at most.")
    write_figures(given.json, {"measures": rows, "points": len(lost), "ceiling": ceiling(lost)})


if __name__ == "__main__":
    main()
