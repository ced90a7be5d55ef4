# SPDX-License-Identifier: Apache-2.0
"""What the page and the card hold: everything once, in both languages, and nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report._synthetic import comparison, drift, run_folder, write

from lerobot_craft.cli import main
from lerobot_craft.report import write_report

SECTIONS = ["training", "success", "drift", "normalization", "cost", "settings", "commands"]
EMPTY_TAGS = {"meta", "link", "line", "path", "rect", "br"}


class Outline(HTMLParser):
    """Collects what the tests ask about, and whether every tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.links: list[str] = []
        self.figures_without_caption = 0
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in EMPTY_TAGS:
            self.open.append(tag)
        if tag == "section":
            self.sections.append(given["id"] or "")
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY_TAGS:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)


def made(tmp_path: Path, *paths: Path) -> str:
    write_report(paths, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_everything_is_there_in_order(report: Path) -> None:
    outline = Outline(report.read_text(encoding="utf-8"))
    assert outline.open == []
    assert outline.sections == SECTIONS


def test_it_needs_nothing_else(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert {link for link in Outline(page).links if not link.startswith("#")} == {"data:,"}
    assert re.findall(r"url\(|@import|https?://|//[a-z]", re.sub(r"<script>.*?</script>", "", page, flags=re.S)) == []
    assert len(page.encode()) < 2_000_000


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    page = made(tmp_path, run_folder(tmp_path / "run", steps=20_000, until=20_000))
    assert len(page.encode()) < 400_000


def test_sections_without_data_are_left_out(tmp_path: Path) -> None:
    only_drift = made(tmp_path, write(tmp_path / "drift.json", drift()))
    assert Outline(only_drift).sections == ["drift", "commands"]
    assert Outline(made(tmp_path, run_folder(tmp_path / "run"))).sections == [
        *("training", "normalization", "cost", "settings", "commands")
    ]


def test_every_figure_says_what_it_shows(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    figures = re.findall(r"<figure.*?</figure>", page, flags=re.S)
    drawn = [figure for figure in figures if 'class="chart"' in figure]
    assert len(drawn) == 10
    for figure in drawn:
        assert re.search(r'<figcaption><span class="en" lang="en">.{30,}<span class="zh"', figure, flags=re.S)


def test_every_text_is_in_both_languages(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    english, chinese = page.count('class="en" lang="en"'), page.count('class="zh" lang="zh-Hans"')
    assert english == chinese > 100
    # Axis titles and labels in the drawings come in pairs too.
    assert len(re.findall(r'<text class="\w+ en"', page)) == len(re.findall(r'<text class="\w+ zh"', page)) > 20


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    nasty = '<script>alert("x")</script>&'
    compared = comparison(problems=[{"name": nasty, "old_tasks": [nasty], "new_tasks": ["b", "c"]}], command=nasty)
    stage = {"new_task": nasty, "success_by_task": {nasty: 0.5}}
    compared["methods"] = {
        name: {
            "title": nasty,
            "old_success": 0.9,
            "new_success": 0.8,
            "runs": [{"problem": nasty, "seed": 0, "stages": [stage]}],
        }
        for name in ("mine", nasty)
    }
    page = made(tmp_path, write(tmp_path / nasty.replace("/", "") / "results.json", compared))
    assert page.count("<script>") == 1
    assert Outline(page).open == []


def test_lang_chooses_what_is_shown_first(report: Path, sources: list[Path], tmp_path: Path) -> None:
    assert main(["report", *map(str, sources), "--lang=zh", f"--output={tmp_path}/report.html"]) == 0
    first = report.read_text(encoding="utf-8").replace('<html lang="en" data-lang="en"', "<html")
    second = (
        (tmp_path / "report.html").read_text(encoding="utf-8").replace('<html lang="zh-Hans" data-lang="zh"', "<html")
    )
    title = r"<title>.*</title>"
    assert re.sub(title, "", first) == re.sub(title, "", second)


def test_several_comparisons_stand_side_by_side(tmp_path: Path) -> None:
    paths = [write(tmp_path / name / "results.json", comparison()) for name in ("one", "two")]
    assert Outline(made(tmp_path, *paths)).sections[:2] == ["success-0", "success-1"]


def test_the_sequence_matrix_holds_its_numbers(tmp_path: Path) -> None:
    stages = [
        {"new_task": "b", "success_by_task": {"a": 0.91, "b": 0.82}},
        {"new_task": "c", "success_by_task": {"a": 0.73, "b": 0.64, "c": 0.55}},
    ]
    compared = comparison(problems=[{"name": "p", "old_tasks": ["a"], "new_tasks": ["b", "c"]}])
    compared["methods"] = {"craft": {"old_success": 0.7, "runs": [{"problem": "p", "seed": 0, "stages": stages}]}}
    page = made(tmp_path, write(tmp_path / "results.json", compared))
    matrix = page[page.index("Sequence: p") :]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", matrix[: matrix.index("</table>")])
    assert cells == ["0.91", "0.82", "–", "0.73", "0.64", "0.55"]


def test_the_card(sources: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "card.md"
    assert main(["report", *map(str, sources), "--card", f"--output={output}"]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    card = output.read_text(encoding="utf-8")
    assert card.startswith("## Forgetting\n\nThe old tasks are kept: **CRaFT** succeeds in **0.95 (0.92–0.98)**")
    assert "| CRaFT | 0.95 (0.92–0.98) | 0.96 (0.92–1.00) |" in card
    assert "`craft.preset=craft`" in card
    assert "```bash\nlerobot-craft compare" in card
    assert main(["report", *map(str, sources), "--card", "--lang=zh", f"--output={output}"]) == 0
    assert "旧任务得到保持：**CRaFT** 的旧任务成功率为" in output.read_text(encoding="utf-8")


def test_help_needs_neither_torch_nor_lerobot(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    assert "one self-contained HTML page" in " ".join(capsys.readouterr().out.split())
