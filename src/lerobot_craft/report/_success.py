# SPDX-License-Identifier: Apache-2.0
"""Success of the methods: figure, table, each task, Pareto front, sequences, what was tried; reads no file."""

from collections.abc import Sequence

from lerobot_craft.report._forest import Dot, Panel, Row, forest
from lerobot_craft.report._html import (
    FULL_WIDTH,
    NARROW_WIDTH,
    Cell,
    Section,
    estimate,
    figure,
    heading,
    label,
    legend,
    table,
    value,
)
from lerobot_craft.report._model import Comparison, Estimate, Method, Problem
from lerobot_craft.report._names import Palette
from lerobot_craft.report._pareto import Point, pareto
from lerobot_craft.report._text import Text, rate, same, span

PARETO_WIDTH = 620
# More names than these cover each other on a narrow page.
MOST_NAMES = 5

SUCCESS = Text(
    "Success by method: share of evaluation episodes that reached their goal. Bars are 95 % intervals; the dotted "
    "line is the teacher before fine-tuning. A method that forgets nothing stays on the line at the left.",
    "各方法的成功率：达成目标的评测回合所占比例。横杠为 95 % 区间；点线为微调前的教师。不遗忘的方法在左图中停留在点线"
    "上。",
)
TABLE = Text("The same as numbers. Click a head to sort.", "同样的结果，以数字列出。点击表头可排序。")
EXPLAINED = {
    "forgetting": Text(
        "Forgetting (NBT) is success lost on earlier tasks, averaged; 0 is none.",
        "遗忘（NBT）为先前任务平均损失的成功率，0 为无遗忘。",
    ),
    "fwt": Text(
        "FWT is success on a new task right after learning it.",
        "FWT 为刚学完一个新任务时在其上的成功率。",
    ),
    "auc": Text(
        "AUC is success on all tasks seen so far, averaged over the moments it was measured.",
        "AUC 为各测量时刻在所有已见任务上成功率的平均。",
    ),
    "drift": Text(
        "Drift is how far actions moved from the teacher's, in standard deviations.",
        "漂移为动作偏离教师的程度，以标准差计。",
    ),
}
BY_TASK = Text(
    "Success on each task at the end of training; the deeper the colour, the higher. New tasks are marked +.",
    "训练结束时每个任务的成功率；颜色越深越高。新任务以 + 标出。",
)
PARETO = Text(
    "Old against new: up learns the new task better, right keeps the old ones better, and the upper right corner does "
    "both. The stepped line is the Pareto front: no method on it is beaten by another in both. The dotted line is the "
    "teacher.",
    "旧与新的权衡：越靠上新任务学得越好，越靠右旧任务保持得越好，右上角两者兼得。阶梯线为帕累托前沿：其上的方法不会在"
    "两方面同时被别的方法超过。点线为教师。",
)
SEQUENCE = Text(
    "Learning one task after the other. Each row is a moment, right after the task it names was learned; each column "
    "is a task, under its number. Read a column downwards: a colour that fades is forgetting.",
    "依次学习多个任务。每一行是刚学完该任务的时刻，每一列是一个任务（以编号为表头）。沿列往下看：颜色变淡即为遗忘。",
)
TRIED = Text(
    "Each method's own strength was chosen by a sweep of equal size, on tasks that the tables above do not use. The "
    "chosen value is in bold.",
    "每种方法自身的强度都由同样规模的搜索选出，所用任务不出现在上面的表中。粗体为选中的值。",
)

MEASURES: dict[str, Text] = {
    "old_success": Text("old tasks", "旧任务"),
    "new_success": Text("new tasks", "新任务"),
    "average_success": Text("all, at the end", "全部任务，最终"),
    "forgetting": Text("forgetting (NBT)", "遗忘（NBT）"),
    "fwt": same("FWT"),
    "auc": same("AUC"),
    "drift": Text("drift", "漂移"),
}


def success_section(comparison: Comparison, palette: Palette, key: str, title: Text) -> Section:
    """Return the section of one comparison."""
    rows = [*([] if comparison.teacher is None else [comparison.teacher]), *comparison.methods]
    rows = [method for method in rows if method.get("old_success") is not None]
    parts = [_figure(comparison, rows, palette), _table(rows, palette)]
    parts += _by_tasks(comparison.problems, rows, palette)
    parts.append(_pareto(comparison, palette))
    parts += [_sequence(problem, comparison.methods) for problem in comparison.problems if len(problem.new_tasks) > 1]
    parts.append(_tried(comparison.methods))
    return Section(key, title, "".join(parts))


def _figure(comparison: Comparison, methods: Sequence[Method], palette: Palette) -> str:
    measures = ("old_success", "new_success")
    panels = [
        Panel(
            MEASURES[measure],
            (0.0, 1.0),
            None if comparison.teacher is None else comparison.teacher.mean(measure),
        )
        for measure in measures
    ]
    rows = [
        Row(
            method.title,
            [
                [Dot(method.title, found, palette[method.name])] if (found := method.get(measure)) is not None else []
                for measure in measures
            ],
        )
        for method in methods
    ]
    return figure(lambda width: forest(panels, rows, width, Text("success by method", "各方法成功率")), SUCCESS)


def _table(methods: Sequence[Method], palette: Palette) -> str:
    shown = [name for name in MEASURES if any(method.get(name) is not None for method in methods)]
    heads = [Text("method", "方法"), *(MEASURES[name] for name in shown)]
    rows = [
        [label(method.title, palette[method.name]), *(_cell(name, method.get(name)) for name in shown)]
        for method in methods
    ]
    caption = TABLE
    for name in shown:
        caption = caption.then(EXPLAINED[name]) if name in EXPLAINED else caption
    return table(heads, rows, caption)


def _cell(measure: str, found: Estimate | None) -> Cell:
    if found is None or measure == "drift":
        return estimate(found)
    known = found.low is not None and found.high is not None
    interval = span(rate(found.low), rate(found.high)) if known else ""
    is_success = measure.endswith("_success")
    return value(rate(found.mean), found.mean, found.mean if is_success else None, interval)


def _by_tasks(problems: Sequence[Problem], methods: Sequence[Method], palette: Palette) -> list[str]:
    if len(problems) == 1:
        return [_by_task(problems[0], methods, palette, BY_TASK)]
    tables = [(problem, _by_task(problem, methods, palette, Text("", ""))) for problem in problems]
    named = [heading(same(problem.name)) + one for problem, one in tables if one]
    return [heading(Text("Each task", "每个任务")), f'<p class="aside">{BY_TASK.html()}</p>', *named] if named else []


def _by_task(problem: Problem, methods: Sequence[Method], palette: Palette, caption: Text) -> str:
    tasks = [*problem.old_tasks, *problem.new_tasks]
    rows = []
    for method in methods:
        ends = [run.stages[-1].success for run in method.runs if run.problem == problem.name and run.stages]
        if ends:
            cells = [_mean_cell([end[task] for end in ends if task in end]) for task in tasks]
            rows.append([label(method.title, palette[method.name]), *cells])
    if not rows:
        return ""
    heads = [Text("method", "方法"), *map(same, problem.old_tasks), *(same(f"+ {task}") for task in problem.new_tasks)]
    return table(heads, rows, caption)


def _mean_cell(values: Sequence[float]) -> Cell:
    if not values:
        return value("–", None)
    mean = sum(values) / len(values)
    return value(rate(mean), mean, mean)


def _pareto(comparison: Comparison, palette: Palette) -> str:
    points = [
        Point(method.title, palette[method.name], old, new)
        for method in comparison.methods
        if (old := method.get("old_success")) is not None and (new := method.get("new_success")) is not None
    ]
    if len(points) < 2:
        return ""
    teacher = None if comparison.teacher is None else comparison.teacher.mean("old_success")
    named = legend([(point.title, point.look, False) for point in points])

    def draw(width: int) -> str:
        if width > NARROW_WIDTH or len(points) <= MOST_NAMES:
            return pareto(points, teacher, min(width, PARETO_WIDTH))
        return named + pareto(points, teacher, width, labels=False)

    return figure(draw, PARETO, wide=FULL_WIDTH)


def _sequence(problem: Problem, methods: Sequence[Method]) -> str:
    tables = []
    for method in methods:
        runs = [run for run in method.runs if run.problem == problem.name and run.stages]
        if not runs:
            continue
        rows = []
        for index, task in enumerate(problem.new_tasks):
            ends = [run.stages[index].success for run in runs if len(run.stages) > index]
            old = [end[name] for end in ends for name in problem.old_tasks if name in end]
            seen = problem.new_tasks[: index + 1]
            each = [
                _mean_cell([end[name] for end in ends if name in seen and name in end]) for name in problem.new_tasks
            ]
            if ends:
                rows.append([label(Text("{n}. {t}", "{n}. {t}").fill(n=index + 1, t=task)), _mean_cell(old), *each])
        numbers = [same(str(index + 1)) for index in range(len(problem.new_tasks))]
        heads = [Text("after learning", "学完之后"), Text("old tasks", "旧任务"), *numbers]
        tables.append(heading(method.title) + table(heads, rows, Text("", ""), sortable=False))
    if not tables:
        return ""
    title = heading(Text("Sequence: {p}", "任务序列：{p}").fill(p=problem.name))
    return f'{title}<p class="aside">{SEQUENCE.html()}</p><div class="pair">{_grouped(tables)}</div>'


def _grouped(tables: Sequence[str]) -> str:
    return "".join(f"<div>{one}</div>" for one in tables)


def _tried(methods: Sequence[Method]) -> str:
    rows = []
    for method in methods:
        strength = method.strength
        for tried, old, new, score in () if strength is None else strength.tried:
            chosen = strength is not None and tried == strength.chosen
            words = f"**{tried}**" if chosen else str(tried)
            setting = "" if strength is None else strength.setting
            named = [label(method.title), label(same(f"`{setting}`")), Cell(same(words), _sortable(tried))]
            rows.append([*named, *(value(rate(one), one) for one in (old, new, score))])
    if not rows:
        return ""
    heads = [
        Text("method", "方法"),
        Text("setting", "设置"),
        Text("value", "取值"),
        Text("old", "旧任务"),
        Text("new", "新任务"),
        Text("score", "得分"),
    ]
    return heading(Text("Strengths tried", "尝试过的强度")) + table(heads, rows, TRIED)


def _sortable(tried: object) -> float | None:
    return float(tried) if isinstance(tried, int | float) else None
