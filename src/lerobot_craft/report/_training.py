# SPDX-License-Identifier: Apache-2.0
"""The course of training: losses, multiplier and budget, conflict of gradients; reads no file."""

from collections.abc import Sequence

from lerobot_craft.report._html import HALF_WIDTH, Section, figure, legend, note
from lerobot_craft.report._line_chart import Line, line_chart
from lerobot_craft.report._model import TrainingRun
from lerobot_craft.report._names import Look, Palette
from lerobot_craft.report._text import Text

# Lines of the log that one point of the conflict rate looks back on.
CONFLICT_WINDOW = 10

TASK = Text(
    "**Task loss**: how badly the policy imitates the new demonstrations; it should fall. It says nothing about the "
    "old tasks. Runs with other normalisation statistics measure it in other units.",
    "**任务损失**：策略对新示范模仿得有多差，应当下降。它不说明旧任务的情况。归一化统计量不同的训练，其损失单位也不同"
    "。",
)
RETENTION = Text(
    "**Retention loss** L_ret (line): how far the student has moved from its teacher on the anchors. The dashed line "
    "is the budget ε: below it, the teacher's behaviour counts as kept.",
    "**保持损失** L_ret（实线）：学生在锚点上偏离教师多远。虚线是预算 ε：低于它即视为保持住了教师的行为。",
)
MULTIPLIER = Text(
    "**Multiplier λ**: how strongly retention pulls back. It rises while the retention loss is over budget and falls "
    "while there is room.",
    "**乘子 λ**：保持项往回拉的力度。保持损失超出预算时升高，有余量时降低。",
)
COSINE = Text(
    "**Cosine** between the gradient of the new task and that of retention. Below the dashed threshold the two "
    "conflict: a step for the new task would undo the old ones.",
    "新任务梯度与保持梯度之间的**余弦**。低于虚线阈值即为冲突：朝新任务走一步会损害旧任务。",
)
CONFLICT = Text(
    "**Conflict rate**: share of the last {n} logged steps in which the two gradients conflicted.",
    "**冲突率**：最近 {n} 个已记录的步中，两个梯度发生冲突的比例。",
)

STUDENTS = Text(
    "Of each method's students the first is shown, on its first new task: {s}.",
    "每种方法只显示其第一个学生在第一个新任务上的训练：{s}。",
)


def training_section(runs: Sequence[TrainingRun], palette: Palette) -> Section:
    """Return the section of the training curves; empty without runs."""
    retaining = [run for run in runs if run.retains]
    parts = [
        _figure(runs, palette, "loss", Text("task loss", "任务损失"), TASK),
        _retention(retaining, palette),
        _figure(retaining, palette, "craft/multiplier", Text("λ", "λ"), MULTIPLIER),
        _cosine(retaining, palette),
        _conflict(retaining, palette),
    ]
    body = "".join(parts)
    if not body:
        return Section("training", TITLE, "")
    students = list(dict.fromkeys(run.student for run in runs if run.student is not None))
    said = note(STUDENTS.fill(s="; ".join(students))) if students else ""
    return Section("training", TITLE, f"{said}{_legend(runs, palette)}<div class='pair'>{body}</div>")


TITLE = Text("Training", "训练过程")


def _legend(runs: Sequence[TrainingRun], palette: Palette) -> str:
    return legend([(run.title, palette[run.name], False) for run in runs])


def _figure(runs: Sequence[TrainingRun], palette: Palette, column: str, name: Text, caption: Text) -> str:
    lines = [Line(run.title, palette[run.name], run.series(column)) for run in runs]
    return _drawn(lines, name, caption)


def _retention(runs: Sequence[TrainingRun], palette: Palette) -> str:
    lines = []
    for run in runs:
        look = palette[run.name]
        lines.append(Line(run.title, look, run.series("craft/retention_loss")))
        lines.append(Line(Text("ε, {r}", "ε，{r}").fill(r=run.title), look, run.series("craft/epsilon"), dashed=True))
    return _drawn(lines, Text("retention loss and budget ε", "保持损失与预算 ε"), RETENTION)


def _cosine(runs: Sequence[TrainingRun], palette: Palette) -> str:
    lines = [Line(run.title, palette[run.name], run.series("craft/cosine")) for run in runs]
    measured = [run for run in runs if run.series("craft/cosine")]
    if not measured:
        return ""
    for threshold in sorted(
        {run.record["conflict_threshold"] for run in measured if "conflict_threshold" in run.record}
    ):
        ends = [step for line in lines for step, _ in line.points]
        title = Text("conflict threshold", "冲突阈值")
        lines.append(Line(title, Look(5, "circle"), [(min(ends), threshold), (max(ends), threshold)], dashed=True))
    return _drawn(lines, Text("cosine of the gradients", "梯度余弦"), COSINE, limits=(-1.0, 1.0))


def _conflict(runs: Sequence[TrainingRun], palette: Palette) -> str:
    lines = []
    for run in runs:
        conflicts = dict(run.series("craft/conflict"))
        # Where no cosine was measured there was no gradient to conflict with.
        points = [(step, conflicts[step]) for step, _ in run.series("craft/cosine") if step in conflicts]
        rates = []
        for index, (step, _) in enumerate(points):
            window = [value for _, value in points[max(0, index + 1 - CONFLICT_WINDOW) : index + 1]]
            rates.append((step, sum(window) / len(window)))
        lines.append(Line(run.title, palette[run.name], rates))
    caption = CONFLICT.fill(n=CONFLICT_WINDOW)
    return _drawn(lines, Text("conflict rate", "冲突率"), caption, limits=(0.0, 1.0))


def _drawn(lines: list[Line], name: Text, caption: Text, *, limits: tuple[float, float] | None = None) -> str:
    if not any(line.points for line in lines):
        return ""
    return figure(lambda width: line_chart(lines, name, width, limits=limits), caption, wide=HALF_WIDTH)
