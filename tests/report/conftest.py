# SPDX-License-Identifier: Apache-2.0
"""One report of everything, made once, and a browser that is started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.report._browser import NAMES, Browser, find
from tests.report._synthetic import comparison, drift, run_folder, write

from lerobot_craft.report import write_report


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A comparison with a sequence, a drift measurement, and a run that stopped half-way."""
    folder = tmp_path_factory.mktemp("sources")
    compared = write(folder / "comparison" / "results.json", comparison()).parent
    return [compared, write(folder / "drift.json", drift()), run_folder(folder / "my-run", until=200)]


@pytest.fixture(scope="session")
def report(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all sources."""
    output = tmp_path_factory.mktemp("report") / "report.html"
    write_report(sources, output)
    return output


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium; the only thing here that a machine may lack."""
    program = find()
    if program is None:
        pytest.skip(f"needs a browser, one of {', '.join(NAMES)}: apt-get install chromium")
    with Browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened
