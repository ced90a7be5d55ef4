# SPDX-License-Identifier: Apache-2.0
"""Every retention mode that applies to ACT trains, starts at the teacher, and resumes bit for bit."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests._command import craft, forked
from tests._problem import Problem
from tests.training._asserts import assert_same_checkpoint
from tests.training.test_resume import killed_in_step

MODES = ["hidden", "action", "hidden+action", "replay", "ewc"]


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
    if mode == "hidden":
        norms = history[0]["craft/student_feature_norm"], history[0]["craft/target_feature_norm"]
        assert 0 < norms[0] == pytest.approx(norms[1], rel=1e-3), "the student starts as the teacher"
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


def test_what_is_frozen_by_name_does_not_move(problem: Problem, tmp_path: Path) -> None:
    changes = {"craft__retention_mode": "none", "craft__freeze": "encoder", "steps": 2}
    outcome = craft(["train", *problem.flags(tmp_path / "run", **changes)])
    assert outcome.code == 0, outcome.text
    before = load_file(problem.teacher / "model.safetensors")
    after = load_file(tmp_path / "run/checkpoints/last/pretrained_model/model.safetensors")
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved
    assert not [name for name in moved if "encoder" in name]


def test_freezing_nothing_or_everything_is_refused(problem: Problem, tmp_path: Path) -> None:
    for pattern, share in (("nosuch", "none"), (".", "all")):
        changes = {"craft__retention_mode": "none", "craft__freeze": pattern}
        outcome = craft(["train", *problem.flags(tmp_path / "run", **changes)])
        assert outcome.code == 2
        assert f"holds for {share} of the" in outcome.text


def test_freeze_behind_tap_moves_nothing_behind_it(act_cache: Path, problem: Problem, tmp_path: Path) -> None:
    changes = {"craft__retention_mode": "hidden", "craft__anchor_cache_dir": act_cache, "craft__retention_freq": 1}
    loose = craft(["train", *problem.flags(tmp_path / "loose", steps=2, **changes)])
    assert loose.code == 0, loose.text
    warning = "trained parameters lie behind the tap"
    assert warning in loose.text
    frozen = craft(["train", *problem.flags(tmp_path / "run", steps=2, **changes), "craft.freeze_behind_tap=true"])
    assert frozen.code == 0, frozen.text
    assert warning not in frozen.text
    name = "checkpoints/last/pretrained_model/model.safetensors"
    before = load_file(problem.teacher / "model.safetensors")
    moved = {n for n, weight in load_file(tmp_path / "run" / name).items() if not torch.equal(weight, before[n])}
    assert any(n.startswith("model.encoder.") for n in moved)
    assert not any(n.startswith(("model.decoder.", "model.action_head.")) for n in moved)
    freely = {n for n, weight in load_file(tmp_path / "loose" / name).items() if not torch.equal(weight, before[n])}
    assert any(n.startswith("model.decoder.") for n in freely)


def test_best_checkpoint_has_both_numbers(act_cache: Path, problem: Problem, tmp_path: Path) -> None:
    changes = {"craft__retention_mode": "action", "craft__anchor_cache_dir": act_cache, "craft__retention_freq": 1}
    done = craft(["train", *problem.flags(tmp_path / "run", steps=4, save_freq=2, **changes)])
    assert done.code == 0, done.text
    card = json.loads((tmp_path / "run/checkpoints/best.json").read_text())
    assert card["within_budget"]
    assert card["held_out_retention_loss"] <= card["budget"]
    assert card["task_loss"] > 0
    assert (tmp_path / "run/checkpoints/best").resolve().name == f"{card['step']:06d}"
    events = [
        row for row in map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines()) if "event" in row
    ]
    assert [row["step"] for row in events if row["event"] == "checkpoint"] == [2, 4]
