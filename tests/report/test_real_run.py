# SPDX-License-Identifier: Apache-2.0
"""What training really writes is what the report reads."""

from pathlib import Path

from tests._command import craft
from tests._problem import Problem

from lerobot_craft.report._read import read


def test_a_real_run_shows_its_course(problem: Problem, act_cache: Path, tmp_path: Path) -> None:
    flags = problem.flags(tmp_path / "run", steps=4, log_freq=1, save_freq=4)
    flags += ["--craft.preset=craft", f"--craft.anchor_cache_dir={act_cache}"]
    trained = craft(["train", *flags])
    assert trained.code == 0, trained.text
    run = read([tmp_path / "run"]).runs[0]
    for column in ("loss", "update_s", "craft/retention_loss", "craft/epsilon", "craft/multiplier", "craft/cosine"):
        assert [step for step, _ in run.series(column)] == [1, 2, 3, 4], column
    assert run.settings["craft.lambda_controller"] == ("pi", "dual")
    assert run.anchor_bytes is not None
    assert run.checkpoint_bytes is not None
    assert run.normalization
    reported = craft(["report", str(tmp_path / "run"), f"--output={tmp_path}/report.html"])
    assert reported.code == 0, reported.text
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<strong>run</strong> finished its 4 steps; its task loss went from" in page
    for section in ("training", "normalization", "cost", "settings", "commands"):
        assert f'<section id="{section}">' in page
