# SPDX-License-Identifier: Apache-2.0
"""Jobs: done in their order, once, again where what decides them has changed; a failure names its job."""

import os
from pathlib import Path
from typing import Any

import pytest

from lerobot_craft.comparison._jobs import Job, run_jobs
from lerobot_craft.errors import RunError, UsageError


def add(folder: Path, after: tuple[Path, ...], number: int) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "times").open("a") as times:
        times.write("x")
    seen = [int((other / "total").read_text()) for other in after]
    (folder / "total").write_text(str(sum(seen) + number))
    return {"total": sum(seen) + number}


def fail(**_: Any) -> dict[str, Any]:  # noqa: ANN401 (any argument)
    raise UsageError("it cannot work")


def die(**_: Any) -> dict[str, Any]:  # noqa: ANN401 (any argument)
    os._exit(9)


def job(folder: Path, number: int, *after: Path, **facts: int) -> Job:
    return Job(folder, folder.name, add, {"folder": folder, "after": after, "number": number}, facts, after)


def run(jobs: list[Job]) -> dict[str, int]:
    outcomes = run_jobs(jobs, 2, lambda *_: None)
    return {folder.name: outcome["total"] for folder, outcome in outcomes.items()}


def times(folder: Path) -> int:
    return len((folder / "times").read_text())


def test_each_waits_for_what_it_needs_and_is_done_once(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    jobs = [job(a, 1), job(b, 10, a), job(c, 100, a, b)]
    assert run(jobs) == {"a": 1, "b": 11, "c": 112}
    assert run(jobs) == {"a": 1, "b": 11, "c": 112}
    assert [times(folder) for folder in (a, b, c)] == [1, 1, 1]


def test_what_changes_is_done_again_with_all_that_came_of_it(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    run([job(a, 1), job(b, 10), job(c, 100, a)])
    assert run([job(a, 2, size=2), job(b, 10), job(c, 100, a)]) == {"a": 2, "b": 10, "c": 102}
    assert [times(folder) for folder in (a, b, c)] == [2, 1, 2]


def test_a_failure_names_its_job_and_the_rest_is_kept(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with pytest.raises(RunError, match=r"b: it cannot work"):
        run([job(a, 1), Job(b, "b", fail, {}, {}, (a,))])
    assert run([job(a, 1)]) == {"a": 1}
    assert times(a) == 1


def test_a_process_that_dies_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="its process ended with 9"):
        run_jobs([Job(tmp_path / "a", "a", die, {})], 1, lambda *_: None)
