# SPDX-License-Identifier: Apache-2.0
"""What surrounds the results: statistics, cost, settings, commands; reads no file."""

import json
from collections.abc import Sequence
from typing import Any

from lerobot_craft.report._html import Section, command, heading, label, note, table, value, words
from lerobot_craft.report._model import Comparison, Material, Method, TrainingRun
from lerobot_craft.report._names import Palette
from lerobot_craft.report._text import Text, number, same, seconds, size

NORMALIZATION = Text(
    "The new data in the teacher's units: the teacher's normalisation statistics were kept, because replacing them "
    "breaks the old tasks before any weight has moved. Reach is the largest distance from the teacher's centre, in "
    "its scale; outside is the share of dimensions that leave the range the teacher knew. Widened dimensions were "
    "constant for the teacher.",
    "以教师的单位衡量新数据：保留了教师的归一化统计量，因为替换它们会在任何权重变动之前就破坏旧任务。“最远”为距教师中"
    "心的最大距离，以其尺度计；“超出”为越出教师已知范围的维度比例。被放宽的维度对教师而言是常数。",
)
COST = Text("What each method costs.", "每种方法的代价。")
STORED = Text(
    "Stored is what must be kept besides the policy: anchors, old data or reference weights.",
    "“存储”为策略之外需要保存的内容：锚点、旧数据或参考权重。",
)
RUN_COST = Text(
    "What each run cost: time of its steps by the log, and what it left on disk.",
    "每次训练的代价：日志中的步时间，以及留在磁盘上的内容。",
)
SETTINGS = Text(
    "Only what differs from the defaults; everything else is as `lerobot-craft train --help` shows it.",
    "只列出与默认值不同的设置；其余与 `lerobot-craft train --help` 所示相同。",
)
COMMANDS = Text("To make these results again, with the same versions:", "用相同的版本重现这些结果：")


def normalization_section(runs: Sequence[TrainingRun]) -> Section:
    """Return the section on statistics; runs with the same table share it."""
    groups: dict[Any, list[TrainingRun]] = {}
    for run in runs:
        if run.normalization:
            groups.setdefault(run.normalization, []).append(run)
    parts = []
    for rows, sharing in groups.items():
        if len(groups) > 1:
            parts.append(heading(_listed([run.title for run in sharing])))
        cells = [
            [
                label(same(f"`{row.feature}`")),
                words(same(row.mode)),
                value(str(row.dimensions), row.dimensions),
                value(number(row.reach), row.reach),
                value(f"{100 * row.outside:.0f} %", row.outside),
                words(_remark(row.widened, added=row.added)),
            ]
            for row in rows
        ]
        heads = [
            Text("feature", "特征"),
            Text("mode", "方式"),
            Text("dimensions", "维数"),
            Text("reach", "最远"),
            Text("outside", "超出"),
            Text("remark", "备注"),
        ]
        parts.append(table(heads, cells, NORMALIZATION))
    return Section("normalization", Text("Normalisation", "归一化"), "".join(parts))


def _remark(widened: Sequence[int], *, added: bool) -> Text:
    if added:
        return Text("unknown to the teacher: the new data's statistics", "教师未知：采用新数据的统计量")
    if widened:
        return Text("widened: {d}", "放宽：{d}").fill(d=", ".join(map(str, widened)))
    return same("–")


def cost_section(material: Material, palette: Palette) -> Section:
    """Return the section on time, memory and bytes."""
    parts = [_comparison_cost(one.methods, palette) for one in material.comparisons]
    # A comparison measures the same over all of its students.
    measured = [run for run in material.runs if run.student is None and run.series("update_s")]
    if measured:
        parts.append(_run_cost(measured, palette))
    return Section("cost", Text("Cost", "代价"), "".join(parts))


def _comparison_cost(methods: Sequence[Method], palette: Palette) -> str:
    columns = {
        "train_s": (Text("training time", "训练时间"), seconds),
        "time_ratio": (Text("× plain", "× 普通微调"), number),
        "peak_memory_mib": (Text("peak memory", "内存峰值"), _mebibytes),
        "stored_bytes": (Text("stored", "存储"), size),
    }
    shown = {key: one for key, one in columns.items() if any(method.get(key) is not None for method in methods)}
    if not shown:
        return ""
    rows = [
        [
            label(method.title, palette[method.name]),
            *(value(spell(method.mean(key)), method.mean(key)) for key, (_, spell) in shown.items()),
        ]
        for method in methods
    ]
    caption = COST.then(STORED) if "stored_bytes" in shown else COST
    return table([Text("method", "方法"), *(head for head, _ in shown.values())], rows, caption)


def _mebibytes(amount: float | None) -> str:
    return size(None if amount is None else amount * 1024**2)


def _run_cost(runs: Sequence[TrainingRun], palette: Palette) -> str:
    rows = []
    for run in runs:
        updates = [value for _, value in run.series("update_s")]
        waits = [value for _, value in run.series("dataloading_s")]
        memory = [value for _, value in run.series("gpu_mem_gb")]
        step = sum(updates) / len(updates) + (sum(waits) / len(waits) if waits else 0.0)
        rows.append(
            [
                label(run.title, palette[run.name]),
                value(f"{run.last_step:,}", run.last_step),
                value(f"{1000 * step:.1f} ms", step),
                value(seconds(step * run.last_step), step * run.last_step),
                value(f"{max(memory):.2f} GiB", max(memory)) if memory else value("–", None),
                value(size(run.anchor_bytes), run.anchor_bytes),
                value(size(run.checkpoint_bytes), run.checkpoint_bytes),
            ]
        )
    heads = [
        Text("run", "训练"),
        Text("steps", "步数"),
        Text("a step", "每步"),
        Text("all steps", "全部步"),
        Text("GPU memory", "显存"),
        Text("anchors", "锚点"),
        Text("weights", "权重"),
    ]
    kept = [i for i in range(len(heads)) if i == 0 or any(row[i].words.en != "–" for row in rows)]
    return table([heads[i] for i in kept], [[row[i] for i in kept] for row in rows], RUN_COST)


def settings_section(material: Material, palette: Palette) -> Section:
    """Return the settings that differ from their defaults: one row per setting, one column per run."""
    parts = [note(SETTINGS)] if any(run.settings for run in material.runs) else []
    runs = [run for run in material.runs if run.settings]
    if runs:
        parts.append(_settings_table(runs))
    for comparison in material.comparisons:
        if comparison.settings:
            cells = [[label(same(f"`{name}`")), words(_word(one))] for name, one in comparison.settings.items()]
            caption = Text("Settings of {p}.", "{p} 的设置。").fill(p=comparison.path.name)
            parts.append(table([Text("setting", "设置"), Text("value", "取值")], cells, caption))
    return Section("settings", Text("Settings", "设置"), "".join(parts))


def _settings_table(runs: Sequence[TrainingRun]) -> str:
    names = sorted(
        {name for run in runs for name in run.settings}, key=lambda name: (not name.startswith("craft."), name)
    )
    rows = []
    for name in names:
        defaults = [run.settings[name][1] for run in runs if name in run.settings]
        cells = [words(_word(run.settings[name][0] if name in run.settings else None)) for run in runs]
        rows.append([label(same(f"`{name}`")), *cells, words(_word(defaults[0]))])
    heads = [Text("setting", "设置"), *(run.title for run in runs), Text("default", "默认值")]
    caption = Text("– stands for the default, or for none.", "– 表示采用默认值或无默认值。")
    return table(heads, rows, caption)


def _word(setting: object) -> Text:
    if setting is None:
        return same("–")
    return same(setting if isinstance(setting, str) else json.dumps(setting, ensure_ascii=False))


def commands_section(material: Material) -> Section:
    """Return the commands to reproduce the results."""
    parts = [heading(title) + command(typed) for title, typed in commands(material)]
    body = note(COMMANDS) + "".join(parts) if parts else ""
    return Section("commands", Text("Commands", "命令"), body)


def commands(material: Material) -> list[tuple[Text, str]]:
    """Return each known command with its title, once."""
    found: list[tuple[Text, str]] = []
    for comparison in material.comparisons:
        found += _of_comparison(comparison)
    for run in material.runs:
        if run.student is None and run.record.get("command"):
            found.append((run.title, str(run.record["command"])))
    for drift in material.drifts:
        paths = ",".join(one.path for one in drift.checkpoints)
        flags = f"--teacher.path={drift.teacher} --policy.path={paths} --dataset.repo_id={drift.dataset}"
        found.append((Text("Drift", "漂移"), f"lerobot-craft drift {flags}"))
    unique = {typed: title for title, typed in reversed(found)}
    return [(title, typed) for typed, title in reversed(unique.items())]


def _of_comparison(comparison: Comparison) -> list[tuple[Text, str]]:
    found = []
    if comparison.command:
        found.append((Text("All of it", "全部"), comparison.command))
    found += [(method.title, method.command) for method in comparison.methods if method.command]
    return found


def _listed(titles: Sequence[Text]) -> Text:
    return Text(", ".join(title.en for title in titles), "、".join(title.zh for title in titles))
