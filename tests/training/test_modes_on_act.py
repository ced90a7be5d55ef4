# SPDX-License-Identifier: Apache-2.0
"""Every retention mode that applies to ACT trains, starts at the teacher, and resumes bit for bit."""

import json
import os
from pathlib import Path

import pytest
from tests._command import craft, forked
from tests._problem import Problem
from tests.training._asserts import assert_same_checkpoint
from tests.training.test_resume import killed_in_step

MODES = ["hidden", "action", "replay", "ewc"]


@pytest.mark.parametrize("mode", MODES)
def test_trains_and_resumes(mode: str, act_cache: Path, problem: Problem, tmp_path: Path) -> None:
    settings = {
        "steps": 8,
        "save_freq": 4,
        "log_freq": 1,
        "craft__retention_mode": mode,
        "craft__retention_freq": 1,
        "craft__anchor_cache_dir": act_cache,
        "craft__anchor_batch_size": 4,
    }
    whole = craft(["train", *problem.flags(tmp_path / "whole", **settings)])
    assert whole.code == 0, whole.text
    assert f"Retention Mode:       {mode}" in whole.text
    history = rows(tmp_path / "whole")
    assert len(history) == 8
    assert all(row["craft/retention_loss"] >= 0 for row in history)
    if mode in ("hidden", "ewc"):
        assert history[0]["craft/retention_loss"] < 1e-6, "the student starts as the teacher"

    def doomed() -> None:
        killed_in_step(6)()
        craft(["train", *problem.flags(tmp_path / "run", **settings)])

    assert os.WIFSIGNALED(forked(doomed))
    path = tmp_path / "run/checkpoints/last/pretrained_model/train_config.json"
    resumed = craft(["train", "--resume=true", f"--config_path={path}"])
    assert resumed.code == 0, resumed.text
    assert_same_checkpoint(tmp_path / "whole/checkpoints/last", tmp_path / "run/checkpoints/last")


def rows(output: Path) -> list[dict[str, float]]:
    return [row for row in map(json.loads, (output / "metrics.jsonl").read_text().splitlines()) if "loss" in row]
