# SPDX-License-Identifier: Apache-2.0
"""From the outcomes of jobs to the table: success, forgetting, drift and cost, mean and interval over runs."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lerobot_craft.comparison._jobs import Outcome
from lerobot_craft.comparison._methods import Method
from lerobot_craft.comparison._plan import Solved
from lerobot_craft.comparison._settings import Problem
from lerobot_craft.evaluation._forgetting import forgetting_metrics

SCHEMA = 1
# What a row of the table has: key, heading, number format.
COLUMNS = (
    ("old_success", "old", ".3f"),
    ("new_success", "new", ".3f"),
    ("forgetting", "NBT", ".3f"),
    ("fwt", "FWT", ".3f"),
    ("auc", "AUC", ".3f"),
    ("drift", "drift", ".3f"),
    ("time_ratio", "time", ".2f"),
    ("peak_memory_mib", "MiB", ".0f"),
    ("stored_bytes", "stored", ".0f"),
)

type Row = dict[str, Any]


def spread(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> dict[str, Any]:
    """Return mean and 95 % interval of the mean (Student's t) over runs.

    Args:
        values: One per run.
        low: Lower end of what is possible.
        high: Upper end of what is possible.
    """
    from scipy.stats import t

    mean = statistics.fmean(values)
    half = math.inf
    if len(values) > 1:
        half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    bounds = (max(low, mean - half), min(high, mean + half))
    kept = [None if math.isinf(bound) else round(bound, 4) for bound in bounds]
    return {"mean": round(mean, 4), "low": kept[0], "high": kept[1], "values": [round(value, 4) for value in values]}


def run_numbers(problem: Problem, teacher: Outcome, stages: Sequence[Outcome]) -> dict[str, float]:
    """Return the numbers of one method on one problem under one seed.

    `old_success` is the mean at the end over all tasks but the last; `new_success` the mean over the new tasks, each
    right after it was taught.
    """
    success = [teacher["success"], *(stage["success"] for stage in stages)]
    learnt = dict.fromkeys(problem.old_tasks, 0) | {task: n + 1 for n, task in enumerate(problem.new_tasks)}
    during = {
        task: [success[n][task], stage["half"], stage["success"][task]]
        for n, (task, stage) in enumerate(zip(problem.new_tasks, stages, strict=True))
    }
    found = forgetting_metrics(success, learnt, during)
    end = success[-1]
    drifts = [value for stage in stages for value in stage["drift"].values()]
    numbers = {
        "old_success": statistics.fmean(end[task] for task in problem.known(len(stages) - 1)),
        "new_success": statistics.fmean(rates[-1] for rates in during.values()),
        "average_success": statistics.fmean(end[task] for task in problem.tasks),
        "drift": statistics.fmean(drifts),
        "train_s": sum(stage["train_cpu_s"] for stage in stages),
        "peak_memory_mib": max(stage["peak_memory_mib"] for stage in stages),
    }
    metrics = {
        "forgetting": found.negative_backward_transfer,
        "fwt": found.forward_transfer,
        "auc": found.area_under_curve,
    }
    return numbers | {name: value for name, value in metrics.items() if value is not None}


def method_row(
    name: str, method: Method, solved: Sequence[Solved], outcomes: Mapping[Path, Outcome], plain_s: Mapping[str, float]
) -> Row:
    """Return a method's row: every number over its runs, and the runs themselves.

    Args:
        name: The method's name.
        method: The method as it was run.
        solved: Its runs.
        outcomes: Of all jobs.
        plain_s: Training time of plain fine-tuning, by `problem/seed`, where it is in the comparison.
    """
    runs = [one for one in solved if one.method == name]
    numbers = [run_numbers(one.problem, outcomes[one.place.teacher], [outcomes[s] for s in one.stages]) for one in runs]
    for one, found in zip(runs, numbers, strict=True):
        found["stored_bytes"] = _stored(method, one, outcomes)
        if (plain := plain_s.get(key_of(one))) is not None:
            found["time_ratio"] = found["train_s"] / plain
    shares = ("old_success", "new_success", "average_success", "fwt", "auc")
    row: Row = {"title": method.title, "command": command_of(method)}
    for key in numbers[0]:
        low, high = (0.0, 1.0) if key in shares else (-math.inf, math.inf)
        row[key] = spread([each[key] for each in numbers], low, high)
    row["runs"] = [_run(one, outcomes) for one in runs]
    return row


def key_of(solved: Solved) -> str:
    """Return what the runs of different methods on one problem under one seed share."""
    return f"{solved.problem.name}/{solved.seed}"


def command_of(method: Method) -> str:
    """Return the command a user would type, with names in place of paths."""
    flags = {name: value for name, value in method.flags.items() if name != "alpha"}
    anchors = ["--craft.anchor_cache_dir=ANCHORS"] if method.cache is not None else []
    words = ["--policy.path=TEACHER", "--dataset.repo_id=NEW_DATA", *(f"--{n}={v}" for n, v in flags.items()), *anchors]
    command = f"lerobot-craft train {' '.join(words)}"
    if method.cache is not None:
        cache = " ".join(f"--{name}={value}" for name, value in method.cache.items())
        source = "OLD_DATA" if method.source == "old" else "NEW_DATA_UNDER_OLD_INSTRUCTIONS"
        build = f"lerobot-craft cache --policy.path=TEACHER --dataset.repo_id={source} --output_dir=ANCHORS {cache}"
        command = f"{build} && {command}"
    if method.merges:
        command += f" && lerobot-craft merge --teacher.path=TEACHER --policy.path=RUN --alpha={method.flags['alpha']}"
    return command


def _stored(method: Method, solved: Solved, outcomes: Mapping[Path, Outcome]) -> int:
    anchors = max((outcomes[path]["stored_bytes"] for path in solved.anchors if path is not None), default=0)
    # What EWC needs its anchors for is over before training begins, and need not be kept.
    weights: int = outcomes[solved.place.teacher]["weights_bytes"]
    return method.keeps * weights if method.keeps else int(anchors)


def _run(solved: Solved, outcomes: Mapping[Path, Outcome]) -> Row:
    stages = []
    for task, folder in zip(solved.problem.new_tasks, solved.stages, strict=True):
        outcome = outcomes[folder]
        stages.append(
            {
                "new_task": task,
                "success_by_task": outcome["success"],
                "half": outcome["half"],
                "drift_by_task": outcome["drift"],
                "train_s": outcome["train_cpu_s"],
                "checkpoint": outcome["checkpoint"],
            }
        )
    return {"problem": solved.problem.name, "seed": solved.seed, "stages": stages}


def teacher_row(solved: Sequence[Solved], outcomes: Mapping[Path, Outcome]) -> Row:
    """Return the teachers' success on what they know and on the first new task."""
    once = {key_of(one): one for one in solved}.values()
    success = [(one.problem, outcomes[one.place.teacher]["success"]) for one in once]
    old = [statistics.fmean(rates[task] for task in problem.old_tasks) for problem, rates in success]
    new = [rates[problem.new_tasks[0]] for problem, rates in success]
    by_task = [
        {"problem": one.problem.name, "seed": one.seed, "success_by_task": outcomes[one.place.teacher]["success"]}
        for one in once
    ]
    return {"title": "teacher", "old_success": spread(old, 0, 1), "new_success": spread(new, 0, 1), "runs": by_task}


def table(results: Row) -> str:
    """Return the results as a Markdown table: one row per method, mean and interval over runs."""
    columns = [column for column in COLUMNS if any(column[0] in row for row in results["methods"].values())]
    heads = ["method", "strength", *(head for _, head, _ in columns)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in (results["teacher"], *results["methods"].values()):
        cells = [_cell(key, row[key], form) if key in row else "" for key, _, form in columns]
        lines.append(f"| {row['title']} | {_strength(row)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _strength(row: Row) -> str:
    strength = row.get("strength")
    return "" if strength is None else f"{strength['setting'].removeprefix('craft.')}={strength['chosen']}"


def _cell(key: str, value: Mapping[str, Any], form: str) -> str:
    mean = value["mean"]
    if key == "stored_bytes":
        return f"{mean / 1024:.0f} KiB" if mean else "0"
    if key in ("peak_memory_mib", "time_ratio"):
        return f"{mean:{form}}"
    if value["low"] is None:
        return f"{mean:{form}}"
    return f"{mean:{form}} ({value['low']:{form}} to {value['high']:{form}})"
