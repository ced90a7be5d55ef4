# SPDX-License-Identifier: Apache-2.0
"""The whole page from its material: order of the sections, head and foot; measures nothing."""

from collections.abc import Sequence
from importlib.metadata import version

from lerobot_craft.report._drift import drift_section
from lerobot_craft.report._facts import commands_section, cost_section, normalization_section, settings_section
from lerobot_craft.report._html import Section
from lerobot_craft.report._model import Material
from lerobot_craft.report._names import Palette
from lerobot_craft.report._script import SCRIPT
from lerobot_craft.report._style import style
from lerobot_craft.report._success import success_section
from lerobot_craft.report._text import LANGUAGE_TAGS, Text, escape
from lerobot_craft.report._training import training_section
from lerobot_craft.report._verdict import Tile, Verdict, verdicts

TITLE = Text("What it learned, and what it kept", "学到了什么，保住了什么")


def page(material: Material, language: str) -> str:
    """Return the page as one HTML document that needs nothing else.

    Args:
        material: What it is about.
        language: The language shown first, `en` or `zh`.
    """
    sections = [section for section in _sections(material) if section.body]
    links = "".join(f'<a href="#{section.key}">{section.title.html()}</a>' for section in sections)
    body = "".join(
        f'<section id="{section.key}"><h2>{section.title.html()}</h2>{section.body}</section>' for section in sections
    )
    title = TITLE.en if language == "en" else TITLE.zh
    return (
        f'<!DOCTYPE html>\n<html lang="{LANGUAGE_TAGS[language]}" data-lang="{language}" '
        f'data-title-en="{escape(TITLE.en)}" data-title-zh="{escape(TITLE.zh)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="lerobot-craft {escape(version("lerobot-craft"))}">\n'
        # An icon of its own keeps browsers from asking for one.
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{style()}</style>\n</head>\n<body>\n'
        f"{_header()}\n<main>\n{_top(verdicts(material))}\n<nav>{links}</nav>\n{body}\n{_footer(material)}\n</main>\n"
        f'<div id="tip" role="status"></div>\n<script>{SCRIPT}</script>\n</body>\n</html>\n'
    )


def _sections(material: Material) -> list[Section]:
    palette = Palette()
    several = len(material.comparisons) > 1
    success = []
    for index, comparison in enumerate(material.comparisons):
        title = Text("Success", "成功率")
        if several:
            title = Text("Success: {p}", "成功率：{p}").fill(p=comparison.path.name)
        success.append(success_section(comparison, palette, f"success-{index}" if several else "success", title))
    return [
        training_section(material.runs, palette),
        *success,
        drift_section(material, palette),
        normalization_section(material.runs),
        cost_section(material, palette),
        settings_section(material, palette),
        commands_section(material),
    ]


def _header() -> str:
    language = '<span class="en" lang="zh-Hans">中文</span><span class="zh" lang="en">English</span>'
    dark, light = Text("Dark", "深色").html(), Text("Light", "浅色").html()
    theme = f'<span class="when-light">{dark}</span><span class="when-dark">{light}</span>'
    return (
        f'<header><div class="name"><b>lerobot-craft</b> · {Text("report", "报告").html()}</div>'
        f'<button type="button" id="language">{language}</button>'
        f'<button type="button" id="theme">{theme}</button></header>'
    )


def _top(found: Sequence[Verdict]) -> str:
    sentences = "".join(f'<p class="verdict">{one.sentence.html()}</p>' for one in found)
    asides = "".join(f'<p class="aside">{aside.html()}</p>' for one in found for aside in one.asides)
    tiles = "".join(_tile(tile) for one in found[:1] for tile in one.tiles)
    return sentences + asides + (f'<div class="tiles">{tiles}</div>' if tiles else "")


def _tile(tile: Tile) -> str:
    return f'<div class="tile {tile.mood}"><b>{escape(tile.amount)}</b><span>{tile.words.html()}</span></div>'


def _footer(material: Material) -> str:
    sources = [one.path for one in material.comparisons] + [one.path for one in material.drifts]
    sources += [run.path for run in material.runs]
    paths = ", ".join(f"<code>{escape(str(path))}</code>" for path in sources)
    words = Text("Made by lerobot-craft {v} from", "由 lerobot-craft {v} 生成，来源：").fill(v=version("lerobot-craft"))
    return f"<footer>{words.html()} {paths}</footer>"
