# SPDX-License-Identifier: Apache-2.0
"""The full-size benchmark in small: every row of a part is timed, kept in the file and printed."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerate.state import AcceleratorState, GradientState, PartialState

from gpu_step import ROWS, Session, earlier, run_parts, table


@pytest.fixture(autouse=True)
def _processes_forgotten() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@pytest.mark.timeout(300)
def test_rows_of_a_part_are_timed_kept_and_printed(tmp_path: Path) -> None:
    session = Session(tmp_path / "work", "cpu", tiny=True, rounds=1, json=tmp_path / "figures.json", deadline=1e9)
    run_parts(session, ["checkpointing"])
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert "failed" not in figures
    rows = figures["checkpointing"]["rows"]
    assert list(rows) == [variant.name for variant in ROWS["checkpointing"]]
    assert all(row["seconds"] > 0 for row in rows.values())
    printed = table(figures)
    assert all(f"| {name} |" in printed for name in rows)


def test_a_part_that_fails_is_named_and_stops_no_other(tmp_path: Path) -> None:
    session = Session(tmp_path, "cpu", tiny=True, rounds=1, json=tmp_path / "figures.json", deadline=1e9)

    def fails() -> None:
        raise ValueError("no such thing")

    session.attempt("bf16", fails)
    session.attempt("fp32", lambda: session.figures.update(reached=True))
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures == {"failed": {"bf16": "ValueError: no such thing"}, "reached": True}
    assert "`bf16` failed: ValueError: no such thing" in table(figures)


def test_a_second_call_adds_to_the_file_of_the_first_on_the_same_kind_of_machine(tmp_path: Path) -> None:
    file, here = tmp_path / "figures.json", {"gpu": "this one"}
    assert earlier(file, here) == {"machine": here}
    file.write_text(json.dumps({"machine": here, "bf16": {"rows": {}}, "failed": {"lora": "no time"}}))
    assert earlier(file, here) == {"machine": here, "bf16": {"rows": {}}}
    with pytest.raises(SystemExit, match="Give another file"):
        earlier(file, {"gpu": "another"})


@pytest.mark.parametrize("name", ["gpu_step", "gpu_step_again"])
def test_the_page_has_the_tables_of_the_results(name: str) -> None:
    root = Path(__file__).parents[2]
    figures = json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text())
    page = (root / "docs" / "benchmarks.md").read_text()
    rows = [line for line in table(figures).splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    assert [row for row in rows if row not in page] == []
