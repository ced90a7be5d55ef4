# SPDX-License-Identifier: Apache-2.0
"""Every command and snippet of docs/report.md does what it says."""

import re
import shlex
from pathlib import Path

import pytest
from tests.report._synthetic import comparison, demo_folder, drift, run_folder, write

from lerobot_craft.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything the page names, and this process in it."""
    demo_folder(tmp_path / "outputs/demo")
    run_folder(tmp_path / "outputs/run")
    write(tmp_path / "outputs/comparison/results.json", comparison())
    write(tmp_path / "drift.json", drift())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands(outputs: Path) -> None:
    commands = re.findall(r"^    lerobot-craft (.*?)(?:  +#.*)?$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert len(commands) == 5
    for command in commands:
        assert main(shlex.split(command)) == 0, command
    assert {path.name for path in outputs.glob("*.*")} == {"report.html", "run.html", "card.md", "drift.json"}


def test_the_snippet(outputs: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    lines = re.findall(r"^    (.*)$", text[text.index("## From Python") :], flags=re.M)
    exec("\n".join(lines), {})  # noqa: S102 (our own documentation)
    assert 'data-lang="zh"' in (outputs / "report.html").read_text(encoding="utf-8")
    assert (outputs / "card.md").read_text(encoding="utf-8").startswith("## Forgetting")
