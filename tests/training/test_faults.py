# SPDX-License-Identifier: Apache-2.0
"""What goes wrong says so: a message, an exit code, nothing half-written, and never a run without retention."""

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import torch
from tests._caches import build_anchors
from tests._command import Outcome, craft
from tests._problem import Problem
from tests.training._asserts import assert_same_checkpoint

from lerobot_craft.anchors import AnchorBatch, AnchorBatches
from lerobot_craft.errors import CacheError
from lerobot_craft.training import _loop

L2SP = {"craft__retention_mode": "l2sp", "craft__retention_freq": 1, "steps": 6, "save_freq": 2, "log_freq": 1}


def refused(outcome: Outcome, output: Path, *fragments: str, code: int = 2) -> None:
    assert outcome.code == code, outcome.text
    for fragment in fragments:
        assert fragment in outcome.text
    assert "Traceback" not in outcome.text
    assert not (output / "checkpoints").exists(), "nothing was trained"
    assert "Step 1/" not in outcome.text


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({}, ["`--craft.retention_mode=hidden` needs anchors", "--craft.anchor_repo_id", "--craft.anchor_cache_dir"]),
        ({"craft__anchor_cache_dir": "/nowhere/at/all"}, ["/nowhere/at/all", "lerobot-craft cache", "--kinds=hidden"]),
        ({**L2SP, "policy__path": "/no/such/policy"}, ["/no/such/policy"]),
        (
            {**L2SP, "dataset__root": "/no/such/data"},
            ["`--dataset.repo_id=craft/small` was not found", "/no/such/data"],
        ),
        ({**L2SP, "job__target": "a10g-small"}, ["`--job.target=a10g-small`", "on this machine only"]),
        (
            {**L2SP, "craft__initial_lambda": -1, "craft__retention_freq": 0, "craft__merge_mode": "sideways"},
            ["3 setting(s)", "`initial_lambda=-1", "`retention_freq=0`", "`merge_mode=sideways`"],
        ),
        ({**L2SP, "craft__retention_mode": "hiden"}, ["`retention_mode=hiden` is unknown", "hidden, action"]),
        ({**L2SP, "craft__lamda_lr": 1}, ["`--craft.lamda_lr` is no setting", "`--craft.lambda_lr`"]),
        ({**L2SP, "craft__preset": "nosuch"}, ["`preset=nosuch` is unknown", "craft"]),
        ({**L2SP, "steps": "many"}, ["many", "int"]),
    ],
    ids=[
        "no-anchor-source",
        "no-cache",
        "no-policy",
        "no-dataset",
        "remote-job",
        "bad-settings-together",
        "unknown-mode",
        "misspelt-flag",
        "unknown-preset",
        "not-a-number",
    ],
)
def test_a_wrong_command_is_refused(
    problem: Problem, tmp_path: Path, changes: dict[str, object], fragments: list[str]
) -> None:
    output = tmp_path / "run"
    refused(craft(["train", *problem.flags(output, **changes)]), output, *fragments)


def test_training_from_random_weights_is_refused(problem: Problem, tmp_path: Path) -> None:
    flags = [flag for flag in problem.flags(tmp_path / "run", **L2SP) if not flag.startswith("--policy.path")]
    outcome = craft(["train", *flags, "--policy.type=act", "--policy.push_to_hub=false"])
    refused(outcome, tmp_path / "run", "nothing to retain", "--policy.path=TEACHER")


def test_existing_output_is_refused(problem: Problem, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    refused(craft(["train", *problem.flags(tmp_path / "run", **L2SP)]), tmp_path / "run", "already exists")


def test_cache_of_another_kind_or_teacher_or_damaged(
    problem: Problem, act_cache: Path, other_teacher: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    anchored = {"craft__anchor_cache_dir": act_cache, "steps": 2}
    where = {"policy_path": problem.teacher, "data": problem.old, "repo_id": "craft/small"}
    replay = build_anchors(tmp_path / "replay", **where, kinds=("replay",))
    wrong = craft(["train", *problem.flags(output, craft__anchor_cache_dir=replay, craft__retention_mode="hidden")])
    refused(
        wrong, output, "`retention_mode` got 'hidden'", "a cache of replay", "lerobot-craft cache", "--kinds=hidden"
    )
    tokens = craft(["train", *problem.flags(output, **anchored, craft__retention_mode="token_ce")])
    refused(tokens, output, "a policy of type `act` does not generate", "--craft.retention_mode=action")
    flags = problem.flags(output, **anchored, craft__retention_mode="action", policy__path=other_teacher)
    refused(craft(["train", *flags]), output, "`teacher` got", "expected", "lerobot-craft cache")
    damaged = shutil.copytree(act_cache, tmp_path / "damaged")
    shard = max(damaged.rglob("*.safetensors"), key=lambda path: path.stat().st_size)
    os.truncate(shard, shard.stat().st_size - 7)
    flags = problem.flags(output, craft__anchor_cache_dir=damaged, craft__retention_mode="action")
    refused(craft(["train", *flags]), output, shard.name, "bytes")


def test_nan_in_the_task_loss_stops_the_run(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lerobot.policies.act.modeling_act import ACTPolicy

    calls = 0
    forward = ACTPolicy.forward

    def poisoned(self: ACTPolicy, batch: dict[str, torch.Tensor], *args: object) -> object:
        nonlocal calls
        calls += 1
        loss, numbers = forward(self, batch, *args)
        return (loss * (torch.nan if calls == 4 else 1.0)), numbers

    monkeypatch.setattr(ACTPolicy, "forward", poisoned)
    outcome = craft(["train", *problem.flags(tmp_path / "run", **L2SP)])
    assert outcome.code == 1
    assert "The task loss is nan" in outcome.text
    assert "at step 4" in outcome.text
    assert "Traceback" not in outcome.text
    assert (tmp_path / "run/checkpoints/last").resolve().name == "000002"


@pytest.mark.parametrize("broken", [3, 4])
def test_anchors_that_cannot_be_read_cost_no_step_before_theirs(
    problem: Problem, act_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """Of three steps with a batch each, the fourth batch is prepared at the end of the run and never needed."""
    taken = 0
    batch_at = AnchorBatches.batch_at

    def fails(self: AnchorBatches, position: int) -> AnchorBatch:
        nonlocal taken
        number = position // self.global_batch + 1
        taken = max(taken, number)
        if number >= broken:
            raise CacheError("this shard was lost")
        return batch_at(self, position)

    monkeypatch.setattr(AnchorBatches, "batch_at", fails)
    settings = {"craft__retention_mode": "action", "craft__retention_freq": 1, "craft__initial_lambda": 1.0}
    settings |= {"craft__epsilon_units": "raw", "craft__held_out_anchors": 0.0, "steps": 3, "save_freq": 2}
    output = tmp_path / "run"
    outcome = craft(["train", *problem.flags(output, craft__anchor_cache_dir=act_cache, **settings)])
    assert "Traceback" not in outcome.text
    assert taken == broken
    done = (output / "checkpoints/last").resolve().name
    if broken == 4:
        assert (outcome.code, done) == (0, "000003"), outcome.text
        return
    assert (outcome.code, done) == (2, "000002"), outcome.text
    assert "this shard was lost" in outcome.text


def test_interrupt_saves_and_ends_cleanly(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on from the interrupted step as if nothing had been."""
    train_step = _loop.train_step

    def interrupted(run, *args, **kwargs):  # noqa: ANN001, ANN002, ANN003, ANN202
        if run.step + 1 == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return train_step(run, *args, **kwargs)

    assert craft(["train", *problem.flags(tmp_path / "whole", **L2SP)]).code == 0
    with monkeypatch.context() as patch:
        patch.setattr(_loop, "train_step", interrupted)
        outcome = craft(["train", *problem.flags(tmp_path / "run", **L2SP)])
    assert outcome.code == 130
    assert "Traceback" not in outcome.text
    last = tmp_path / "run/checkpoints/last"
    assert last.resolve().name == "000003"
    path = last / "pretrained_model/train_config.json"
    assert f"lerobot-craft train --resume=true --config_path={path}" in outcome.text
    assert craft(["train", "--resume=true", f"--config_path={path}"]).code == 0
    assert_same_checkpoint(tmp_path / "whole/checkpoints/000006", tmp_path / "run/checkpoints/000006")


def test_checkpoint_that_does_not_fit_on_the_disk(problem: Problem, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the write fails in the middle, for real."""
    output = tmp_path / "run"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        outcome = craft(["train", *problem.flags(output, **L2SP)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert outcome.code == 1, outcome.text
    assert "could not be written" in outcome.text
    assert "there is no earlier one" in outcome.text
    assert "Traceback" not in outcome.text
    assert not list((output / "checkpoints").iterdir())


def test_full_disk_is_called_by_its_name(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lerobot_craft.training import _compat

    save = _compat.save_checkpoint

    def full(*, step: int, **kwargs):  # noqa: ANN003, ANN202
        save(step=step, **kwargs)
        if step == 4:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(_compat, "save_checkpoint", full)
    outcome = craft(["train", *problem.flags(tmp_path / "run", **L2SP)])
    assert outcome.code == 1
    assert "the disk is full" in outcome.text
    assert "000002" in outcome.text
    left = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert left == ["000002", "best", "best.json", "last"]
