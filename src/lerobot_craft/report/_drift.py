# SPDX-License-Identifier: Apache-2.0
"""Drift from the teacher: by checkpoint, layer, task and joint; reads no file."""

from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.report._forest import Dot, Panel, Row, forest
from lerobot_craft.report._html import HALF_WIDTH, Cell, Section, estimate, figure, label, legend, table, value
from lerobot_craft.report._html import words as words_cell
from lerobot_craft.report._model import CheckpointDrift, Comparison, Drift, Estimate, Material, TrainingRun
from lerobot_craft.report._names import COLOURS, MARKERS, Look, Palette
from lerobot_craft.report._text import Text, number, rate, same
from lerobot_craft.report._verdict import short

CHECKPOINTS = Text(
    "One row per checkpoint. Action drift is the distance between the student's and the teacher's actions on the same "
    "observations, in standard deviations of the action. It is measured again with the student's weights under the "
    "teacher's statistics (weights), and with the statistics alone changed (statistics): the larger of the two did "
    "the damage.",
    "每个检查点一行。动作漂移是在相同观测下学生与教师动作之间的距离，以动作的标准差计。另外分别测量：学生权重配教师统"
    "计量（权重），以及只改变统计量（统计量）：较大的一项就是造成损害的原因。",
)
BY_TASK = Text(
    "Action drift by task: 0 acts exactly like the teacher. The dotted line is the limit that was set.",
    "各任务的动作漂移：0 表示与教师完全一致。点线为设定的上限。",
)
BY_JOINT = Text(
    "Action drift by joint: which part of the robot moves differently.", "各关节的动作漂移：机器人的哪个部分动得不同。"
)
BY_LAYER = Text(
    "Feature drift by layer, from the input at the top to the output at the bottom: distance of the student's hidden "
    "states from the teacher's, in units of their norm. Early layers that moved change everything behind them.",
    "各层的特征漂移，自上而下由输入到输出：学生隐藏状态与教师的距离，以其范数为单位。靠前的层一旦移动，后面的一切都会"
    "改变。",
)
LAYERS = Text(
    "Cosine and CKA are 1 where nothing moved; CKA forgives a rotation of the features, which "
    "the layer behind may have followed, and the distance does not.",
    "完全未动时余弦与 CKA 均为 1；CKA 不计特征的旋转（其后的层可能已随之调整），而距离会计入。",
)
COMPARED = Text(
    "Action drift on each task by method, averaged over seeds: the deeper the colour, the further from the teacher.",
    "各方法在每个任务上的动作漂移，对种子取平均：颜色越深离教师越远。",
)


def drift_section(material: Material, palette: Palette) -> Section:
    """Return the section on drift; empty where none was measured."""
    parts = [_of_drift(drift, material.runs, palette) for drift in material.drifts]
    parts += [_of_comparison(one, palette) for one in material.comparisons]
    return Section("drift", Text("Drift from the teacher", "偏离教师的程度"), "".join(parts))


def _of_drift(drift: Drift, runs: Sequence[TrainingRun], palette: Palette) -> str:
    marks = list(zip(drift.checkpoints, _looks(drift, runs, palette), strict=True))
    named = legend([(same(short(one)), look, False) for one, look in marks]) if len(marks) > 1 else ""
    tasks = _forest([(one.by_task, short(one), look) for one, look in marks], drift.max_drift, BY_TASK)
    joints = _forest([(one.by_joint, short(one), look) for one, look in marks], None, BY_JOINT)
    layers = _forest([(_layers(one), short(one), look) for one, look in marks], None, BY_LAYER)
    figures = f"{named}<div class='pair'>{tasks}{joints}{layers}</div>"
    return f"{_checkpoints(marks, drift.keep)}{figures}{_layer_table(marks)}"


def _looks(drift: Drift, runs: Sequence[TrainingRun], palette: Palette) -> list[Look]:
    """Return the looks of the runs the checkpoints are from; checkpoints of one run are told apart by their place."""
    names = [_run_name(one, runs) for one in drift.checkpoints]
    if len(set(names)) == len(names):
        return [palette[name] for name in names]
    return [Look(index % COLOURS, MARKERS[index % len(MARKERS)]) for index in range(len(names))]


def _run_name(checkpoint: CheckpointDrift, runs: Sequence[TrainingRun]) -> str:
    reported = [run.name for run in runs if Path(checkpoint.path).is_relative_to(run.path)]
    return reported[0] if reported else short(checkpoint).split("/")[0]


def _layer_table(marks: Sequence[tuple[CheckpointDrift, Look]]) -> str:
    rows = [
        [
            label(same(layer.layer)),
            words_cell(same(short(one))),
            estimate(layer.relative_l2),
            estimate(layer.cosine),
            value(number(layer.cka), layer.cka),
        ]
        for one, _ in marks
        for layer in one.features
    ]
    if not rows:
        return ""
    heads = [
        Text("layer", "层"),
        Text("checkpoint", "检查点"),
        Text("relative distance", "相对距离"),
        Text("cosine", "余弦"),
        Text("linear CKA", "线性 CKA"),
    ]
    inside = table(heads, rows, LAYERS)
    return f"<details><summary>{Text('The layers as numbers', '各层的数字').html()}</summary>{inside}</details>"


def _layers(checkpoint: CheckpointDrift) -> dict[str, Estimate]:
    return {one.layer: one.relative_l2 for one in checkpoint.features if one.relative_l2 is not None}


def _forest(series: Sequence[tuple[dict[str, Estimate], str, Look]], limit: float | None, caption: Text) -> str:
    names = list(dict.fromkeys(name for values, _, _ in series for name in values))
    if not names:
        return ""
    rows = [
        Row(same(name), [[Dot(same(title), values[name], look) for values, title, look in series if name in values]])
        for name in names
    ]
    title = Text("relative distance", "相对距离") if caption is BY_LAYER else Text("action drift", "动作漂移")
    panels = [Panel(title, None, limit)]
    return figure(lambda width: forest(panels, rows, width, title), caption, wide=HALF_WIDTH)


def _checkpoints(marks: Sequence[tuple[CheckpointDrift, Look]], keep: str | None) -> str:
    columns: dict[Text, list[Cell]] = {
        Text("step", "步"): [value(number(one.step, 7), one.step) for one, _ in marks],
        Text("action drift", "动作漂移"): [estimate(one.action) for one, _ in marks],
        Text("weights", "权重"): [estimate(one.weights) for one, _ in marks],
        Text("statistics", "统计量"): [estimate(one.statistics) for one, _ in marks],
        Text("token KL", "词元 KL"): [estimate(one.token_kl) for one, _ in marks],
        Text("answer to a swapped instruction", "对换指令的反应"): [_language(one) for one, _ in marks],
        Text("advice", "建议"): [_advice(one, keep) for one, _ in marks],
    }
    shown = {head: cells for head, cells in columns.items() if any(cell.words.en != "–" for cell in cells)}
    rows = [
        [label(same(short(one)), look), *(cells[index] for cells in shown.values())]
        for index, (one, look) in enumerate(marks)
    ]
    return table([Text("checkpoint", "检查点"), *shown], rows, CHECKPOINTS)


def _language(checkpoint: CheckpointDrift) -> Cell:
    language = checkpoint.language
    if language is None or language.ratio is None:
        return value("–", None)
    words = Text("{r}× the teacher's", "教师的 {r} 倍").fill(r=number(language.ratio, 2))
    if language.ignores:
        words = Text("ignores it ({r})", "不再理会（{r}）").fill(r=words)
    return Cell(words, language.ratio)


def _advice(checkpoint: CheckpointDrift, keep: str | None) -> Cell:
    if checkpoint.path == keep:
        return words_cell(Text("**keep**", "**保留**"))
    if checkpoint.over is None:
        return words_cell(same("–"))
    limit = Text("over the limit", "超出上限") if checkpoint.over else Text("within the limit", "在上限之内")
    return words_cell(limit)


def _of_comparison(comparison: Comparison, palette: Palette) -> str:
    parts = []
    for problem in comparison.problems:
        tasks = [*problem.old_tasks, *problem.new_tasks]
        found = []
        for method in comparison.methods:
            ends = [run.stages[-1].drift for run in method.runs if run.problem == problem.name and run.stages]
            means = {task: [end[task] for end in ends if task in end] for task in tasks}
            if any(means.values()):
                found.append((method, {task: sum(v) / len(v) for task, v in means.items() if v}))
        if not found:
            continue
        shown = [task for task in tasks if any(task in means for _, means in found)]
        most = max(mean for _, means in found for mean in means.values()) or 1.0
        rows = [
            [
                label(method.title, palette[method.name]),
                *(value(rate(means.get(task)), means.get(task), means.get(task, 0.0) / most) for task in shown),
            ]
            for method, means in found
        ]
        named = f"<h3>{same(problem.name).html()}</h3>" if len(comparison.problems) > 1 else ""
        parts.append(named + table([Text("method", "方法"), *map(same, shown)], rows, COMPARED))
    return "".join(parts)
