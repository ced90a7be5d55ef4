# SPDX-License-Identifier: Apache-2.0
"""Does offline action drift predict lost success? Spearman's correlation over policies that forgot to every degree.

Takes the folder of `lerobot-craft demo`. Policies between its teacher and its plainly fine-tuned student (teacher's
statistics kept), the plainly fine-tuned one with new statistics, and the one of CRaFT are compared with the teacher on
400 frames of the old dataset, then tried on the four old tasks from 20 starts that nothing else uses. A point is a
policy on a task: its drift there, and the success it lost. 8 minutes on two quiet cores.
"""

import contextlib
import io
import itertools
import json
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from _figures import parser, write_figures
from lerobot_craft.caching._source import open_dataset
from lerobot_craft.caching._teacher import Teacher, load_teacher
from lerobot_craft.drift import action_drift
from lerobot_craft.drift._settings import DriftSettings
from lerobot_craft.evaluation import instruction
from lerobot_craft.evaluation._rollout import Rollouts
from lerobot_craft.merging import merge_checkpoints

SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 1.0)
STARTS = range(50_000, 50_020)
# Two episodes of 20: no more than chance would do.
NOTICEABLE = 0.1


class Point(NamedTuple):
    """One policy on one task."""

    policy: str
    task: str
    drift: float
    lost: float


def spearman(points: list[Point]) -> float:
    """Return the rank correlation between drift and lost success; equal values share their mean rank."""
    ranks = [_ranks([point.drift for point in points]), _ranks([point.lost for point in points])]
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: list[float]) -> list[float]:
    return [statistics.fmean(place for place, v in enumerate(sorted(values)) if v == value) for value in values]


def in_order(points: list[Point]) -> float:
    """Return the share of pairs with different losses in which the larger drift lost more.

    Where many lost nothing at all, ranks are shared and Spearman's correlation cannot reach 1; this can.
    """
    pairs = [(a, b) for a, b in itertools.combinations(points, 2) if a.lost != b.lost]
    return statistics.fmean((a.drift > b.drift) == (a.lost > b.lost) for a, b in pairs)


def make_policies(demo: Path, folder: Path) -> dict[str, Path]:
    """Return the policies by name, the teacher first."""

    def end(run: str) -> Path:
        return (demo / "runs" / run / "checkpoints" / "last" / "pretrained_model").resolve()

    policies = {"teacher": demo / "teacher", "CRaFT": end("craft"), "plain": end("plain")}
    for share in SHARES:
        merged = merge_checkpoints(demo / "teacher", end("plain_teacher_statistics"), share, folder / f"{share:g}")
        policies[f"{share:g} of plain"] = merged.path
    return policies


def load(path: Path) -> Teacher:
    """Load a policy without LeRobot's remarks."""
    with contextlib.redirect_stdout(io.StringIO()):
        return load_teacher(str(path), "cpu")


def measure(demo: Path, policies: dict[str, Path]) -> list[Point]:
    """Return a point for each policy but the teacher, and each old task."""
    settings = json.loads((demo / "results.json").read_text())
    longest = {task: settings["longest_episode"][task] for task in settings["old_tasks"]}
    loaded = [load(path) for path in policies.values()]
    choice = DriftSettings(teacher_path=str(demo), policy_paths=("all",), repo_id=str(demo / "data" / "old"))
    drifts = action_drift(loaded[0], loaded, open_dataset(choice, loaded[0].policy.config))
    rollouts = Rollouts(STARTS)
    known: dict[str, float] = {}
    points = []
    for (name, path), drift in zip(policies.items(), drifts, strict=True):
        rates = {success.task: success.rate for success in rollouts.success(path, longest, lambda _: None)}
        known = known or rates
        for task, rate in rates.items():
            points.append(Point(name, task, drift.by_task[instruction(task)].mean, known[task] - rate))
            print(f"{name:>14}  {task:<22}  {points[-1].drift:6.3f} σ  lost {points[-1].lost:5.2f}", flush=True)
    return [point for point in points if point.policy != "teacher"]


def figures(points: list[Point]) -> dict[str, float]:
    """Return what docs/drift.md quotes."""
    by_policy = [
        Point(name, "all", statistics.fmean(p.drift for p in points if p.policy == name), lost)
        for name in dict.fromkeys(point.policy for point in points)
        for lost in [statistics.fmean(p.lost for p in points if p.policy == name)]
    ]
    tasks = sorted({point.task for point in points})
    within = [in_order([point for point in points if point.task == task]) for task in tasks]
    return {
        "points": len(points),
        "spearman, all points": spearman(points),
        "spearman, mean of a policy": spearman(by_policy),
        "pairs in order, all points": in_order(points),
        "pairs in order, within a task, worst": min(within),
        "least drift that lost more than 0.1": min(point.drift for point in points if point.lost > NOTICEABLE),
        "largest drift that lost no more": max(point.drift for point in points if point.lost <= NOTICEABLE),
    }


def main() -> None:
    """Print the points and their correlations."""
    made = parser(__doc__)
    made.add_argument("--demo", type=Path, default=Path("outputs/demo"), help="the folder of `lerobot-craft demo`")
    given = made.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = figures(measure(given.demo, make_policies(given.demo, Path(folder))))
    for name, value in found.items():
        print(f"{name:<38} {value:.3g}")
    write_figures(given.json, found)


if __name__ == "__main__":
    main()
