# SPDX-License-Identifier: Apache-2.0
"""The whole demo in small: what it leaves, that it is deterministic, goes on after an interruption and reuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests._command import Outcome, craft

SMALL = ("--old_tasks=reach,button-press-topdown", "--new_task=drawer-open", "--demos=2", "--episodes=2")
SHORT = ("--teacher_steps=4", "--steps=3", "--seed=3")


def demo(output: Path, *words: str) -> Outcome:
    return craft(["demo", *SMALL, *SHORT, f"--output_dir={output}", *words])


def without_times(path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((path / "results.json").read_text())
    assert results.pop("wall_s") > 0
    return results


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    output = tmp_path_factory.mktemp("demo") / "out"
    return output, demo(output)


def test_it_ends_with_a_table(finished: tuple[Path, Outcome]) -> None:
    _, outcome = finished
    assert outcome.code == 0, outcome.text
    for row in ("teacher, before", "plain, as LeRobot does it", "plain, teacher's statistics", "CRaFT"):
        assert row in outcome.text
    assert "[10/10] evaluate craft" in outcome.text


def test_results_hold_what_is_promised(finished: tuple[Path, Outcome]) -> None:
    results = without_times(finished[0])
    assert results["old_tasks"] == ["reach", "button-press-topdown"]
    assert results["new_task"] == "drawer-open"
    assert results["episodes_per_task"] == 2
    assert list(results["methods"]) == ["teacher", "plain", "plain_teacher_statistics", "craft"]
    for row in results["methods"].values():
        assert list(row["old_by_task"]) == results["old_tasks"]
        assert row["old_success"] == pytest.approx(sum(row["old_by_task"].values()) / 2)
        assert 0 <= row["new_interval"][0] <= row["new_success"] <= row["new_interval"][1] <= 1


def test_everything_left_behind_is_usable(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    output, _ = finished
    words = [f"--policy.path={output}/teacher", "--dataset.repo_id=craft-demo/new", f"--dataset.root={output}/data/new"]
    words += ["--craft.preset=craft", f"--craft.anchor_cache_dir={output}/anchors", "--craft.dry_run=true"]
    trained = craft(["train", *words])
    assert trained.code == 0, trained.text
    inspected = craft(["cache", f"--inspect={output}/anchors"])
    assert inspected.code == 0, inspected.text
    student = f"--policy.path={output}/runs/craft/checkpoints/last/pretrained_model"
    words = [student, "--dataset.repo_id=craft-demo/old", f"--dataset.root={output}/data/old", "--num_anchors=4"]
    again = craft(["cache", *words, f"--output_dir={tmp_path}/cache", "--kinds=action"])
    assert again.code == 0, again.text


def test_the_page_shows_the_results(finished: tuple[Path, Outcome]) -> None:
    output, outcome = finished
    page = (output / "report.html").read_text(encoding="utf-8")
    assert f"All of it on one page: {output / 'report.html'}" in outcome.text
    # Three steps are too few for a line of the log, so there is no course of training to show.
    for section in ("success", "normalization", "cost", "settings", "commands"):
        assert f'<section id="{section}">' in page
    # The command as it was typed, and a setting that differs from its default.
    assert "--craft.preset=craft" in page
    assert "<code>craft.lambda_controller</code>" in page


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (("plain_teacher_statistics", "craft"), "Not all methods are finished"),
        (("plain", "plain_teacher_statistics", "craft"), "No fine-tuning is measured yet"),
        (("teacher", "plain", "plain_teacher_statistics", "craft"), "has evaluated nothing yet"),
    ],
)
def test_a_demo_that_stopped_half_way_can_be_looked_at(
    finished: tuple[Path, Outcome], tmp_path: Path, left_out: tuple[str, ...], said: str
) -> None:
    stages = json.loads((finished[0] / "stages.json").read_text())
    for stage in left_out:
        del stages["stages"][f"evaluate {stage}"]
    (tmp_path / "stages.json").write_text(json.dumps(stages))
    outcome = craft(["report", str(tmp_path), f"--output={tmp_path}/report.html"])
    assert outcome.code == (2 if "teacher" in left_out else 0), outcome.text
    page = tmp_path / "report.html"
    assert said in (page.read_text(encoding="utf-8") if page.exists() else outcome.text)


def test_run_again_it_reuses_what_is_finished(finished: tuple[Path, Outcome]) -> None:
    output, _ = finished
    before = without_times(output)
    again = demo(output)
    assert again.code == 0, again.text
    assert again.text.count("reused") == 10
    assert without_times(output) == before


def test_interrupted_it_goes_on_to_the_same_results(
    finished: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lerobot_craft.training import _loop

    with monkeypatch.context() as patched:
        # As if Ctrl-C had been pressed in the second step of the teacher's training.
        patched.setattr(_loop.Loop, "_agreed", lambda loop, asked: loop.run.step == 2)
        interrupted = demo(tmp_path)
    assert interrupted.code == 130
    assert "The same command goes on" in interrupted.text
    assert not (tmp_path / "results.json").exists()
    outcome = demo(tmp_path)
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("reused") == 1
    assert without_times(tmp_path) == without_times(finished[0])


def test_other_settings_are_refused(finished: tuple[Path, Outcome]) -> None:
    outcome = demo(finished[0], "--seed=4")
    assert outcome.code == 2
    assert "`--seed`: the folder has 3, got 4" in outcome.text
    assert "--output_dir" in outcome.text


def test_an_unknown_task_names_its_neighbours(tmp_path: Path) -> None:
    outcome = craft(["demo", "--new_task=drawer-opne", f"--output_dir={tmp_path}/out"])
    assert outcome.code != 0
    assert "did you mean drawer-open" in outcome.text
    assert not (tmp_path / "out").exists()
