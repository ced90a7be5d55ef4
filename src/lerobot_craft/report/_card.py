# SPDX-License-Identifier: Apache-2.0
"""The report as a Markdown section for a model card; measures nothing."""

import json

from lerobot_craft.report._facts import commands
from lerobot_craft.report._forest import with_interval
from lerobot_craft.report._html import broken
from lerobot_craft.report._model import Comparison, Estimate, Material
from lerobot_craft.report._success import MEASURES
from lerobot_craft.report._text import LANGUAGES, Text, rates
from lerobot_craft.report._verdict import verdicts


def card(material: Material, language: str) -> str:
    """Return the section: verdict, success, settings, commands.

    Args:
        material: What it is about.
        language: `en` or `zh`.
    """
    index = LANGUAGES.index(language)
    parts = [f"## {Text('Forgetting', '遗忘情况')[index]}"]
    for verdict in verdicts(material):
        parts += [verdict.sentence[index], *(aside[index] for aside in verdict.asides)]
    parts += [_success(comparison, index) for comparison in material.comparisons]
    if settings := _settings(material, index):
        parts.append(settings)
    known = commands(material)
    if known:
        parts.append(f"### {Text('Commands', '命令')[index]}")
        parts += [f"{title[index]}:\n\n```bash\n{broken(words)}\n```" for title, words in known]
    return "\n\n".join(parts) + "\n"


def _success(comparison: Comparison, index: int) -> str:
    methods = [*([] if comparison.teacher is None else [comparison.teacher]), *comparison.methods]
    shown = [name for name in MEASURES if any(method.get(name) is not None for method in methods)]
    lines = [
        f"| {Text('method', '方法')[index]} | " + " | ".join(MEASURES[name][index] for name in shown) + " |",
        "|---|" + "---|" * len(shown),
    ]
    for method in methods:
        cells = [_cell(name, method.get(name)) for name in shown]
        lines.append(f"| {_plain(method.title[index])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(measure: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    if measure == "drift":
        return with_interval(estimate)
    return rates(estimate.mean, estimate.low, estimate.high)


def _settings(material: Material, index: int) -> str:
    lines = []
    for run in material.runs:
        chosen = {name: value for name, (value, _) in run.settings.items() if name.startswith("craft.")}
        if chosen:
            words = ", ".join(f"`{name}={_word(value)}`" for name, value in chosen.items())
            lines.append(f"- {_plain(run.title[index])}: {words}")
    head = Text("Settings that differ from the defaults", "与默认值不同的设置")[index]
    return "\n".join([f"### {head}", "", *lines]) if lines else ""


def _word(setting: object) -> str:
    return setting if isinstance(setting, str) else json.dumps(setting, ensure_ascii=False)


def _plain(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")
