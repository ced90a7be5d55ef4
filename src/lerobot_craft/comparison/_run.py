# SPDX-License-Identifier: Apache-2.0
"""`run`: a comparison from its settings to its tables; tuning first, then the problems, then the files."""

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lerobot_craft.comparison._jobs import Job, Outcome, run_jobs
from lerobot_craft.comparison._methods import Method
from lerobot_craft.comparison._plan import Plan, Solved
from lerobot_craft.comparison._results import SCHEMA, Row, key_of, method_row, run_numbers, table, teacher_row
from lerobot_craft.comparison._settings import TUNING, TUNING_SEEDS, CompareSettings, Problem
from lerobot_craft.demo._console import Console
from lerobot_craft.demo._record import check_same, write_json
from lerobot_craft.evaluation import check_tasks

INTERRUPTED = 130
SETTINGS = "settings.json"

type Strength = dict[str, Any]


def run(settings: CompareSettings, words: Sequence[str]) -> int:
    """Compare the methods; what an earlier run finished is used again.

    Args:
        settings: What to compare.
        words: The command line, for the record.

    Returns:
        0 when the tables are there, 130 when it was interrupted; the same command goes on then.

    Raises:
        CraftError: With a message for the user, whatever it is that cannot work.
    """
    for problems in settings.groups().values():
        for problem in problems:
            check_tasks("old_tasks", problem.old_tasks)
            check_tasks("new_tasks", problem.new_tasks)
    _check_folder(settings)
    console = Console()
    began = time.monotonic()
    try:
        methods, strengths = _tuned(settings, console)
        plan = Plan(settings)
        for group, problems in settings.groups().items():
            for problem in problems:
                plan.add(problem, {name: methods[name] for name in settings.methods_of(group)}, settings.seeds)
        outcomes = _do(plan, settings, console)
        for group, problems in settings.groups().items():
            chosen = {name: methods[name] for name in settings.methods_of(group)}
            results = _results(settings, problems, chosen, strengths, plan.solved, outcomes)
            results["command"] = shlex.join(["lerobot-craft", "compare", *words])
            folder = settings.output_dir if group == next(iter(settings.groups())) else settings.output_dir / group
            write_json(folder / "results.json", results)
            console.line(f"\n{group}: {_size(settings, problems)}\n{table(results)}\n{folder / 'results.json'}")
            _report(folder, console)
    except KeyboardInterrupt:
        console.line("Interrupted. The same command goes on after the last finished job.")
        return INTERRUPTED
    console.line(f"{time.monotonic() - began:.0f} s in all.")
    return 0


def _check_folder(settings: CompareSettings) -> None:
    path = settings.output_dir / SETTINGS
    asked = settings.fixed()
    if not path.is_file():
        write_json(path, asked)
        return
    saved = json.loads(path.read_text(encoding="utf-8"))
    check_same(settings.output_dir, "holds a comparison of another size:", saved, asked)


def _tuned(settings: CompareSettings, console: Console) -> tuple[dict[str, Method], dict[str, Strength]]:
    """Return the methods at the strength that was best on the tuning problems, and all that was tried."""
    methods = {name: settings.known_methods[name] for name in settings.methods}
    tried = {name: method for name, method in methods.items() if method.strengths and settings.tune}
    if not tried:
        return methods, {}
    console.line(f"Strengths are chosen on {_tasks(TUNING)}.")
    plan = Plan(settings)
    variants = {
        (name, n): method.at(value) for name, method in tried.items() for n, value in enumerate(method.strengths)
    }
    for problem in TUNING:
        plan.add(problem, {f"{name}/{n}": method for (name, n), method in variants.items()}, TUNING_SEEDS)
    for problems in settings.groups().values():
        for problem in problems:
            # Their teachers are needed next, and keep the cores busy meanwhile.
            plan.add(problem, {}, settings.seeds)
    outcomes = _do(plan, settings, console)
    strengths: dict[str, Strength] = {}
    for name, method in tried.items():
        rows = [_score(value, f"{name}/{n}", plan.solved, outcomes) for n, value in enumerate(method.strengths)]
        # Where several do equally well, the one that moved least.
        best = max(rows, key=lambda row: (row["score"], -row["drift"]))
        strengths[name] = {"setting": method.setting, "chosen": best["value"], "tried": rows}
        methods[name] = method.at(best["value"])
        console.line(
            f"  {name}: {method.setting}={best['value']} (old {best['old_success']:.2f}, new {best['new_success']:.2f})"
        )
    return methods, strengths


def _score(value: Any, name: str, solved: list[Solved], outcomes: Mapping[Path, Outcome]) -> Row:  # noqa: ANN401
    """Return old and new success of one strength, and what is maximised: their mean."""
    runs = [one for one in solved if one.method == name]
    numbers = [run_numbers(one.problem, outcomes[one.place.teacher], [outcomes[s] for s in one.stages]) for one in runs]
    old = sum(row["old_success"] for row in numbers) / len(numbers)
    new = sum(row["new_success"] for row in numbers) / len(numbers)
    return {
        "value": value,
        "old_success": round(old, 4),
        "new_success": round(new, 4),
        "score": round((old + new) / 2, 4),
        "drift": round(sum(row["drift"] for row in numbers) / len(numbers), 4),
    }


def _results(
    settings: CompareSettings,
    problems: Sequence[Problem],
    methods: Mapping[str, Method],
    strengths: Mapping[str, Strength],
    all_solved: Sequence[Solved],
    outcomes: Mapping[Path, Outcome],
) -> Row:
    solved = [one for one in all_solved if one.problem in problems]
    plain_s = {
        key_of(one): sum(outcomes[stage]["train_cpu_s"] for stage in one.stages)
        for one in solved
        if one.method == "plain"
    }
    rows = {name: method_row(name, method, solved, outcomes, plain_s) for name, method in methods.items()}
    for name, row in rows.items():
        row["strength"] = strengths.get(name)
    return {
        "format": "lerobot-craft comparison",
        "schema": SCHEMA,
        "version": version("lerobot-craft"),
        "settings": settings.fixed(),
        "seeds": list(settings.seeds),
        "episodes_per_task": settings.episodes,
        "problems": [
            {"name": p.name, "old_tasks": list(p.old_tasks), "new_tasks": list(p.new_tasks)} for p in problems
        ],
        "teacher": teacher_row(solved, outcomes),
        "methods": rows,
        "wall_s": round(sum(outcome["wall_s"] for outcome in outcomes.values()), 1),
    }


def _do(plan: Plan, settings: CompareSettings, console: Console) -> dict[Path, Outcome]:
    began = time.monotonic()
    before = 0

    def on_job(done: int, total: int, does: str) -> None:
        nonlocal before
        before = before or done
        left = (time.monotonic() - began) / (done - before + 1) * (total - done)
        console.passing(f"  {done} of {total} jobs, {left / 60:.0f} min left; last: {does}")

    jobs: list[Job] = list(plan.jobs.values())
    return run_jobs(jobs, settings.workers, on_job)


def _size(settings: CompareSettings, problems: Sequence[Problem]) -> str:
    return f"{_tasks(problems)}; {len(settings.seeds)} seeds, {settings.episodes} episodes a task."


def _tasks(problems: Sequence[Problem]) -> str:
    return "; ".join(f"{', '.join(p.old_tasks)} → {' → '.join(p.new_tasks)}" for p in problems)


def _report(folder: Path, console: Console) -> None:
    from lerobot_craft.report import write_report

    write_report([folder], folder / "report.html")
    console.line(str(folder / "report.html"))
