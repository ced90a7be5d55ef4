# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft cache` on tiny real checkpoints of all six policy types, from the command line to the constraint."""

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from lerobot_craft import ConstraintConfig, RetentionConstraint
from lerobot_craft.anchors import AnchorBatches, AnchorCache, open_cache
from lerobot_craft.cli import main
from lerobot_craft.retention import make_retention

TYPES = ("act", "diffusion", "smolvla", "pi0", "pi05", "pi0_fast")
type Make = Callable[[str], object]


def words(paths: object, output: Path, **flags: object) -> list[str]:
    given = {
        "policy.path": paths.policy,
        "dataset.repo_id": "craft/tiny",
        "dataset.root": paths.data,
        "output_dir": output,
    }
    return ["cache", *(f"--{name}={value}" for name, value in {**given, **flags}.items())]


@pytest.mark.parametrize("policy_type", TYPES)
def test_nothing_is_violated_until_the_weights_move(policy_type: str, make_tiny_once: Make, tmp_path: Path) -> None:
    from lerobot_craft.caching._teacher import load_teacher
    from lerobot_craft.policies import make_tap, policy_loss
    from lerobot_craft.testing import add_noise_

    kinds = "hidden,action,replay" + (",tokens" if policy_type == "pi0_fast" else "")
    paths = make_tiny_once(policy_type)
    assert main(words(paths, tmp_path / "cache", num_anchors=12, kinds=kinds, dtype="float32")) == 0
    cache = open_cache(tmp_path / "cache")
    assert isinstance(cache, AnchorCache)
    plan = cache.manifest.plan
    assert (len(cache), set(cache.kinds)) == (12, set(kinds.split(",")))
    teacher = load_teacher(str(paths.policy))
    student = copy.deepcopy(teacher.policy)
    tap = make_tap(student, layers=plan.layers)
    hidden = make_retention(
        "hidden",
        AnchorBatches(cache, 6),
        features=lambda batch: tap.features(batch, plan.pooling),
        preprocess=teacher.preprocess,
    )
    action = make_retention(
        "action",
        # A cycle repeats noise and timesteps, so that the student is compared with the teacher on the same ones.
        AnchorBatches(cache, 6, cycle=4),
        policy_loss=lambda batch, seed: policy_loss(student, batch, seed),
        preprocess=teacher.preprocess,
        reference_batches=4,
    )
    settings = {"retention_freq": 1, "epsilon_schedule": "constant", "epsilon_units": "relative"}
    constraints = {
        "hidden": RetentionConstraint(student, hidden, ConstraintConfig(**settings, epsilon_start=1e-4)),
        "action": RetentionConstraint(student, action, ConstraintConfig(**settings, epsilon_start=1e-4)),
    }
    before = {name: constraint.apply_(0, statistics=True).floats() for name, constraint in constraints.items()}
    assert before["hidden"]["retention_loss"] == pytest.approx(0.0, abs=1e-6)
    assert all(report["violated"] == 0.0 for report in before.values())
    add_noise_(student, 0.5, seed=0)
    after = {name: constraint.apply_(1, statistics=True).floats() for name, constraint in constraints.items()}
    assert after["hidden"]["retention_loss"] > 1e-3
    assert all(after[name]["retention_loss"] > before[name]["retention_loss"] for name in after)


def test_the_two_commands_of_the_users_documents(
    make_tiny_once: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = make_tiny_once("pi0_fast")
    first = f"--policy.pretrained_path={paths.policy} --dataset.repo_id={paths.data} --out_dir={tmp_path / 'a'} "
    assert main(["cache", *(first + "--num_anchors=1000 --layers_to_save=-2,-1").split()]) == 0
    second = f"--policy.path={paths.policy} --dataset.repo_id={paths.data} --output_dir={tmp_path / 'b'} "
    assert main(["cache", *(second + "--num_samples=100 --hidden_layer=-2 --pooling=mean_image_tokens").split()]) == 0
    printed = capsys.readouterr().out
    assert "teacher_hidden                       float16    [2, 2, 48]" in printed
    assert "target_features                      float16    [48]" in printed
    assert open_cache(tmp_path / "a").batch([0, 1]).targets["teacher_hidden"].shape == (2, 2, 2, 48)
    assert open_cache(tmp_path / "b").batch([0, 1]).targets["target_features"].shape == (2, 48)


def test_inspect_prints_the_cache_and_writes_a_contact_sheet(
    make_tiny_once: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(make_tiny_once("act"), tmp_path / "cache", num_anchors=5)) == 0
    capsys.readouterr()
    assert main(["cache", f"--inspect={tmp_path / 'cache'}"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"Anchors +5 in .* KiB each", printed)
    assert "Kinds          hidden, action" in printed
    assert "Contact sheet" in printed
    assert "10 images" in printed
    with Image.open(tmp_path / "cache" / "contact_sheet.png") as sheet:
        assert len(sheet.convert("RGB").getcolors(1 << 16)) > 10
    assert len(open_cache(tmp_path / "cache")) == 5


@pytest.mark.parametrize("selection", ["random", "k_center"])
def test_selections(selection: str, make_tiny_once: Make, tmp_path: Path) -> None:
    paths = make_tiny_once("act")
    assert main(words(paths, tmp_path / "cache", num_anchors=6, selection=selection, kinds="action")) == 0
    plan = open_cache(tmp_path / "cache").manifest.plan
    assert len(set(plan.frame_indices)) == 6
    assert plan.extra["selection"] == selection


def test_old_instructions_on_new_images(make_tiny_once: Make, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("open the drawer\nclose the door\n")
    paths = make_tiny_once("smolvla")
    assert main(words(paths, tmp_path / "cache", num_anchors=4, kinds="action", prompts_file=prompts)) == 0
    tasks = open_cache(tmp_path / "cache").batch([0, 1, 2, 3]).frames["task"]
    assert tasks == ["open the drawer", "close the door"] * 2


def test_workers_and_episodes_give_the_frames_asked_for(make_tiny_once: Make, tmp_path: Path) -> None:
    paths = make_tiny_once("act")
    flags = {"num_anchors": 8, "kinds": "action", "dataset.episodes": "[1,2]"}
    assert main(words(paths, tmp_path / "plain", **flags)) == 0
    assert main(words(paths, tmp_path / "workers", **flags, num_workers=1)) == 0
    plain, workers = open_cache(tmp_path / "plain"), open_cache(tmp_path / "workers")
    assert set(plain.batch(range(8)).frames["episode_index"].tolist()) == {1, 2}
    assert [shard.sha256 for shard in plain.manifest.shards] == [shard.sha256 for shard in workers.manifest.shards]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"policy.path": "/no/such/policy"}, "`--policy.path=/no/such/policy` could not be loaded"),
        ({"dataset.root": "/no/such/data"}, "`--dataset.repo_id=craft/tiny` was not found"),
        ({"kinds": "tokens"}, "has no action tokens"),
        ({"tap": "model.encoder.layer.1"}, "model.encoder.layers.1"),
        ({"layers_to_save": "-9"}, "-9"),
        ({"pooling": "vision_mean_text_last"}, "text"),
        ({"num_anchors": "0"}, "num_anchors=0"),
    ],
)
def test_mistakes_end_in_one_clear_message(
    flags: dict[str, str], message: str, make_tiny_once: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(make_tiny_once("act"), tmp_path / "cache", **{"num_anchors": 4, **flags})) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_a_finished_cache_is_not_overwritten_unasked(
    make_tiny_once: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = make_tiny_once("act")
    assert main(words(paths, tmp_path / "cache", num_anchors=4, kinds="action")) == 0
    before = (tmp_path / "cache" / "manifest.json").read_bytes()
    assert main(words(paths, tmp_path / "cache", num_anchors=5, kinds="action")) == 2
    assert "overwrite" in capsys.readouterr().err
    assert (tmp_path / "cache" / "manifest.json").read_bytes() == before
    assert main([*words(paths, tmp_path / "cache", num_anchors=5, kinds="action"), "--overwrite=true"]) == 0
    assert len(open_cache(tmp_path / "cache")) == 5


def test_an_older_cache_is_converted(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    shard = {
        "pixel_values": torch.rand(4, 3, 8, 8),
        "input_ids": torch.ones(4, 6, dtype=torch.int64),
        "attention_mask": torch.ones(4, 6, dtype=torch.int64),
        "teacher_hidden": torch.randn(4, 2, 2, 8).half(),
        "meta": [{"index": i} for i in range(4)],
    }
    torch.save(shard, old / "shard_0000.pt")
    (old / "metadata.json").write_text(json.dumps({"num_anchors": 4}))
    assert main(["cache", f"--convert={old}", f"--output_dir={tmp_path / 'new'}"]) == 0
    cache = open_cache(tmp_path / "new")
    assert isinstance(cache, AnchorCache)
    assert torch.equal(cache.batch(range(4)).targets["teacher_hidden"], shard["teacher_hidden"])


def test_help_needs_neither_torch_nor_lerobot() -> None:
    code = (
        "import sys; from lerobot_craft.cli import main; main(['cache', '--help']);"
        "print('torch' in sys.modules, 'lerobot' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**os.environ}
    )
    assert result.stdout.strip().endswith("False False")
