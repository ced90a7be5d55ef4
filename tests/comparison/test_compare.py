# SPDX-License-Identifier: Apache-2.0
"""A whole comparison in small: what it leaves, that it is deterministic, goes on and refuses another size."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests._command import Outcome, craft

from lerobot_craft.evaluation._rollout import load_teacher

SMALL = ("--old_tasks=reach", "--new_tasks=drawer-open,button-press-topdown", "--seeds=3", "--tune=false")
SHORT = ("--demos=2", "--episodes=1", "--teacher_steps=4", "--steps=3", "--num_anchors=20", "--workers=2")
TIMES = ("wall_s", "train_s", "time_ratio", "peak_memory_mib", "command")


def compare(output: Path, methods: str, *words: str) -> Outcome:
    return craft(["compare", f"--methods={methods}", *SMALL, *SHORT, f"--output_dir={output}", *words])


def results(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "results.json").read_text())
    return found


def without_times(value: object, output: Path) -> object:
    if isinstance(value, dict):
        return {key: without_times(part, output) for key, part in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(part, output) for part in value]
    return value.replace(str(output), "") if isinstance(value, str) else value


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    output = tmp_path_factory.mktemp("compare") / "out"
    return output, compare(output, "plain,craft,merge,lora")


def test_it_ends_with_a_table_and_a_report(finished: tuple[Path, Outcome]) -> None:
    output, outcome = finished
    assert outcome.code == 0, outcome.text
    for row in ("| teacher |", "| plain, teacher's statistics |", "| CRaFT |", "| interpolation |", "| LoRA |"):
        assert row in outcome.text
    assert (output / "report.html").is_file()


def test_results_hold_every_run(finished: tuple[Path, Outcome]) -> None:
    output, _ = finished
    found = results(output)
    assert found["problems"] == [
        {"name": "custom", "old_tasks": ["reach"], "new_tasks": ["drawer-open", "button-press-topdown"]}
    ]
    for method in found["methods"].values():
        (run,) = method["runs"]
        assert [stage["new_task"] for stage in run["stages"]] == ["drawer-open", "button-press-topdown"]
        assert set(run["stages"][1]["success_by_task"]) == {"reach", "drawer-open", "button-press-topdown"}
        assert set(run["stages"][1]["drift_by_task"]) == {"reach", "drawer-open"}
    assert found["methods"]["craft"]["stored_bytes"]["mean"] > 0
    assert found["methods"]["plain"]["time_ratio"]["values"] == [1.0]


def test_every_students_checkpoint_loads(finished: tuple[Path, Outcome]) -> None:
    output, _ = finished
    for method in results(output)["methods"].values():
        for stage in method["runs"][0]["stages"]:
            assert not load_teacher(stage["checkpoint"], "cpu").policy.training


def test_the_same_command_uses_all_of_it_again(finished: tuple[Path, Outcome]) -> None:
    output, _ = finished
    before = results(output)
    again = compare(output, "plain,craft")
    assert again.code == 0, again.text
    assert "jobs" not in again.text
    for name in ("plain", "craft"):
        assert results(output)["methods"][name]["runs"] == before["methods"][name]["runs"]


def test_the_same_seed_twice_gives_the_same_results(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    output, _ = finished
    assert compare(output, "plain,craft").code == 0
    assert compare(tmp_path / "out", "plain,craft").code == 0
    assert without_times(results(output), output) == without_times(results(tmp_path / "out"), tmp_path / "out")


def test_another_size_is_refused(finished: tuple[Path, Outcome]) -> None:
    output, _ = finished
    other = compare(output, "plain", "--episodes=3")
    assert other.code == 2
    assert "`--episodes`: the folder has 1, got 3" in other.text


def test_a_task_that_is_none(tmp_path: Path) -> None:
    outcome = craft(["compare", "--old_tasks=pish", "--new_tasks=reach", f"--output_dir={tmp_path}"])
    assert outcome.code == 2
    assert "did you mean push" in outcome.text
