# SPDX-License-Identifier: Apache-2.0
"""What each path is found to be, and one clear line for every path that is nothing."""

import json
from pathlib import Path

import pytest
from tests.report._synthetic import comparison, demo_folder, drift, run_folder, write

from lerobot_craft.cli import main
from lerobot_craft.errors import UsageError
from lerobot_craft.report import write_report
from lerobot_craft.report._read import read


def refusal(*paths: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read(paths)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_each_path_is_what_it_is(sources: list[Path]) -> None:
    material = read(sources)
    assert [len(material.comparisons), len(material.drifts), len(material.runs)] == [1, 1, 1]
    assert len(material.comparisons[0].methods) == 14
    assert material.runs[0].last_step == 200
    assert material.drifts[0].checkpoints[2].over is True


def test_the_first_student_of_each_method_shows_its_training(tmp_path: Path) -> None:
    compared = comparison()
    run = run_folder(tmp_path / "drawer" / "craft-0")
    stage = compared["methods"]["craft"]["runs"][0]["stages"][0]
    stage["checkpoint"] = str(run / "checkpoints/last/pretrained_model")
    material = read([write(tmp_path / "results.json", compared)])
    assert [(run.name, run.student) for run in material.runs] == [("craft", "drawer, seed 0")]
    assert not material.is_alone(material.runs[0])


def test_a_file_inside_a_folder_stands_for_it(sources: list[Path]) -> None:
    compared, _, run = sources
    material = read([compared / "results.json", run / "metrics.jsonl", run])
    assert [len(material.comparisons), len(material.runs)] == [1, 2]


def test_a_demo_is_a_comparison_with_its_runs(tmp_path: Path) -> None:
    material = read([demo_folder(tmp_path / "demo")])
    demo = material.comparisons[0]
    # What the demo calls plain is LeRobot's own way, which comparisons call by that name.
    assert [method.name for method in demo.methods] == ["lerobot", "plain", "craft"]
    assert [run.name for run in material.runs] == ["lerobot", "plain", "craft"]
    assert [run.path.name for run in material.runs] == ["plain", "plain_teacher_statistics", "craft"]
    assert demo.methods[2].measures["old_success"].mean == 0.9
    assert demo.methods[2].measures["time_ratio"].mean == 2.0
    assert demo.complete


def test_no_path() -> None:
    assert "`PATH` is missing" in refusal()


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert f"`{tmp_path}/nowhere` does not exist: expected a training run's folder" in refusal(tmp_path / "nowhere")


def test_an_empty_folder(tmp_path: Path) -> None:
    assert f"`{tmp_path}` is empty: expected" in refusal(tmp_path)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "holiday.txt").write_text("sea")
    assert "holds nothing a report is made from: expected" in refusal(tmp_path)


@pytest.mark.parametrize("log", [None, "", '{"step": 4, "lo'])
def test_a_run_without_a_logged_step(tmp_path: Path, log: str | None) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    if log is not None:
        (folder / "metrics.jsonl").write_text(log)
    assert "is a run that logged no step: it stopped before its first line" in refusal(folder)


def test_a_run_that_stopped_half_way_shows_what_there_is(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", until=120)
    with (folder / "metrics.jsonl").open("a") as log:
        log.write('{"step": 121, "loss": 0.1')
    write_report([folder], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<strong>run</strong> stopped at step 120 of 300" in page
    assert "1 line(s) of its log could not be read" in page
    assert "retention ends <strong>over budget</strong>" in page


def test_a_run_without_record_or_checkpoint(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "run.json").unlink()
    run = read([folder]).runs[0]
    assert (run.steps, run.settings, run.normalization) == (None, {}, ())


def test_steps_that_were_logged_twice_count_once(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", until=3)
    with (folder / "metrics.jsonl").open("a") as log:
        log.write('{"step": 2, "event": "checkpoint"}\n{"step": 2, "loss": 9.0}\n')
    assert [row["step"] for row in read([folder]).runs[0].rows] == [1, 2, 3]
    assert read([folder]).runs[0].rows[1]["loss"] == 9.0


@pytest.mark.parametrize("kind", ["comparison", "drift", "run"])
def test_a_newer_version_wrote_it(tmp_path: Path, kind: str) -> None:
    if kind == "run":
        path = run_folder(tmp_path / "run")
        record = json.loads((path / "run.json").read_text())
        write(path / "run.json", {**record, "schema": 2, "version": "7.0"})
    else:
        made = comparison if kind == "comparison" else drift
        path = write(tmp_path / "results.json", made(schema=2, version="7.0"))
    message = refusal(path)
    assert "has schema 2, written by lerobot-craft 7.0; this version reads up to 1" in message
    assert "pip install -U lerobot-craft" in message


def test_a_file_of_something_else(tmp_path: Path) -> None:
    assert "has no `format`: expected" in refusal(write(tmp_path / "a.json", {"x": 1}))
    assert "has `format` 'a song': expected" in refusal(write(tmp_path / "b.json", {"format": "a song"}))
    (tmp_path / "c.json").write_text('{"format": "lerobot-craft dri')
    assert "is no JSON" in refusal(tmp_path / "c.json")
    (tmp_path / "d.json").write_text("[1]")
    assert "holds a list: expected a JSON object" in refusal(tmp_path / "d.json")
    (tmp_path / "e.bin").write_bytes(b"\xff\x00")
    assert "is no JSON" in refusal(tmp_path / "e.bin")


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    broken = comparison()
    broken["methods"]["craft"]["old_success"]["mean"] = "high"
    message = refusal(write(tmp_path / "results.json", broken))
    assert '`methods`, `craft`, `old_success`: `mean` is "high": expected a number' in message


def test_nothing_measured_yet(tmp_path: Path) -> None:
    assert "holds no finished method yet" in refusal(write(tmp_path / "results.json", comparison(methods={})))
    assert "holds no checkpoint" in refusal(write(tmp_path / "drift.json", drift(checkpoints=[])))


def test_optional_keys_may_be_absent(tmp_path: Path) -> None:
    bare = {"format": "lerobot-craft comparison", "schema": 1}
    bare["methods"] = {"craft": {"old_success": 0.9}, "mine": {"old_success": {"mean": 0.8, "low": None}}}
    path = write(tmp_path / "results.json", bare)
    write_report([path], tmp_path / "report.html")
    assert "<strong>CRaFT</strong> succeeds in <strong>0.90</strong>" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", ["results.json", "metrics.jsonl", "report"])
def test_no_result_is_ever_overwritten(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "run")
    before = (folder / "metrics.jsonl").read_text()
    assert main(["report", str(folder), f"--output={folder / name}"]) == 2
    assert "expected a file that ends in .html" in capsys.readouterr().err
    assert (folder / "metrics.jsonl").read_text() == before


def test_an_unknown_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "--lang=fr"]) == 2
    assert "`--lang=fr` is unknown: expected one of en, zh" in capsys.readouterr().err
