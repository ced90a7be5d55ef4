# SPDX-License-Identifier: Apache-2.0
"""Comparisons and demos from their folders; draws nothing."""

from pathlib import Path
from typing import Any

from lerobot_craft.demo import DemoSettings
from lerobot_craft.demo._methods import METHODS
from lerobot_craft.demo._record import RECORD, method_results
from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation import TaskSuccess
from lerobot_craft.report._fields import Fields, check_schema, read_json
from lerobot_craft.report._model import Comparison, Estimate, Method, Problem, Stage, Strength, StudentRun
from lerobot_craft.report._names import title

RESULTS = "results.json"
# What the demo calls its methods, and what comparisons call them.
DEMO_NAMES = {"plain": "lerobot", "plain_teacher_statistics": "plain"}
FORMAT = "lerobot-craft comparison"
MEASURES = (
    "old_success",
    "new_success",
    "average_success",
    "forgetting",
    "fwt",
    "auc",
    "drift",
    "train_s",
    "time_ratio",
    "peak_memory_mib",
    "stored_bytes",
)


def read_comparison(path: Path) -> Comparison:
    """Return the comparison in a `results.json` that `lerobot-craft compare` wrote.

    Raises:
        UsageError: If it is damaged, empty, or from a newer version.
    """
    fields = read_json(path)
    check_schema(fields)
    methods = tuple(_method(name, one) for name, one in fields.child("methods").named())
    if not any(method.measures for method in methods):
        raise UsageError(f"`{path}` holds no finished method yet: run `lerobot-craft compare` again, it goes on.")
    teacher = fields.child("teacher")
    seeds = fields.values.get("seeds")
    return Comparison(
        path=path.parent,
        methods=methods,
        teacher=_teacher(teacher) if teacher.values else None,
        problems=tuple(_problem(one) for one in fields.children("problems")),
        seeds=tuple(seeds) if isinstance(seeds, list) else (),
        episodes=fields.whole_or_none("episodes_per_task"),
        command=fields.text_or_none("command"),
        settings=fields.child("settings").values,
        wall_s=fields.number_or_none("wall_s"),
    )


def _problem(fields: Fields) -> Problem:
    return Problem(fields.text("name"), fields.texts("old_tasks"), fields.texts("new_tasks"))


def _method(name: str, fields: Fields) -> Method:
    return Method(
        name=name,
        title=title(name, fields.text_or_none("title")),
        command=fields.text_or_none("command"),
        measures=_measures(fields),
        strength=_strength(fields.child("strength")),
        runs=tuple(_student(one) for one in fields.children("runs")),
    )


def _teacher(fields: Fields) -> Method:
    runs = tuple(
        StudentRun(one.text("problem"), int(one.number("seed")), (Stage("", one.numbers("success_by_task"), {}),))
        for one in fields.children("runs")
    )
    return Method("teacher", title("teacher"), measures=_measures(fields), runs=runs)


def _measures(fields: Fields) -> dict[str, Estimate]:
    found = {name: fields.estimate(name) for name in MEASURES}
    return {name: value for name, value in found.items() if value is not None}


def _strength(fields: Fields) -> Strength | None:
    if not fields.values:
        return None
    tried = tuple(
        (
            one.values.get("value"),
            one.number_or_none("old_success"),
            one.number_or_none("new_success"),
            one.number_or_none("score"),
        )
        for one in fields.children("tried")
    )
    return Strength(fields.text("setting"), fields.values.get("chosen"), tried)


def _student(fields: Fields) -> StudentRun:
    stages = tuple(
        Stage(
            one.text("new_task"),
            one.numbers("success_by_task"),
            one.numbers("drift_by_task"),
            one.text_or_none("checkpoint"),
        )
        for one in fields.children("stages")
    )
    return StudentRun(fields.text("problem"), int(fields.number("seed")), stages)


def read_demo(folder: Path) -> Comparison:
    """Return what the demo in a folder has measured so far, finished or not.

    Raises:
        UsageError: If it has not measured anything yet, or its record is damaged.
    """
    record = read_json(folder / RECORD)
    stages = record.child("stages")
    settings = _demo_settings(record.child("settings"), folder)
    outcomes = {
        name: [
            TaskSuccess(task, tuple(ends))
            for task, ends in stages.child(f"evaluate {name}").child("outcomes").values.items()
        ]
        for name in ("teacher", *METHODS)
        if f"evaluate {name}" in stages
    }
    if not outcomes:
        raise UsageError(
            f"`{folder}` holds a demo that has evaluated nothing yet: the same `lerobot-craft demo` command goes on."
        )
    methods = {name: _demo_method(name, settings, ends, stages) for name, ends in outcomes.items()}
    problem = Problem("demo", settings.old_tasks, (settings.new_task,))
    episodes = [stages.child(f"evaluate {name}").whole_or_none("episodes") for name in outcomes]
    return Comparison(
        path=folder,
        methods=tuple(_with_time_ratio(methods, name) for name in METHODS if name in methods),
        teacher=methods.get("teacher"),
        problems=(problem,),
        seeds=(settings.seed,),
        episodes=episodes[0],
        command=_demo_command(settings, folder),
        settings={name: value for name, value in settings.fixed().items() if value != DemoSettings().fixed()[name]},
        wall_s=sum(stage.number("seconds") for _, stage in stages.named()),
        complete=len(outcomes) == 1 + len(METHODS),
    )


def _demo_settings(fields: Fields, folder: Path) -> DemoSettings:
    fields.texts("old_tasks")
    known: dict[str, Any] = {**fields.values, "old_tasks": tuple(fields.values["old_tasks"]), "output_dir": folder}
    try:
        return DemoSettings(**known)
    except TypeError as error:
        raise UsageError(
            f"{fields.where}: holds settings this version does not know ({error}): update it with "
            "`pip install -U lerobot-craft`, or make the demo again."
        ) from error


def _demo_method(name: str, settings: DemoSettings, outcomes: list[TaskSuccess], stages: Fields) -> Method:
    results = method_results(settings, outcomes)
    measures = {
        "old_success": Estimate(results["old_success"], *results["old_interval"]),
        "new_success": Estimate(results["new_success"], *results["new_interval"]),
    }
    if name != "teacher" and name in stages:
        measures["train_s"] = Estimate(stages.child(name).number("seconds"))
    success = {**results["old_by_task"], settings.new_task: results["new_success"]}
    student = StudentRun("demo", settings.seed, (Stage(settings.new_task, success, {}),))
    known = DEMO_NAMES.get(name, name)
    return Method(known, title(known), measures=measures, runs=(student,))


def _with_time_ratio(methods: dict[str, Method], name: str) -> Method:
    method, plain = methods[name], methods.get("plain")
    own, base = method.mean("train_s"), None if plain is None else plain.mean("train_s")
    if own is None or not base:
        return method
    measures = {**method.measures, "time_ratio": Estimate(own / base)}
    return Method(method.name, method.title, method.command, measures, method.strength, method.runs)


def _demo_command(settings: DemoSettings, folder: Path) -> str:
    usual = DemoSettings().fixed()
    words = [
        f"--{name}={','.join(value) if isinstance(value, list) else value}"
        for name, value in settings.fixed().items()
        if value != usual[name]
    ]
    where = [] if folder == DemoSettings().output_dir else [f"--output_dir={folder}"]
    return " ".join(["lerobot-craft demo", *words, *where])
