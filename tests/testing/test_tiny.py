# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints are real ones: LeRobot's own code loads, runs and trains them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.policies.factory import make_policy, make_pre_post_processors
from safetensors.torch import load_file

from lerobot_craft.errors import CraftError
from lerobot_craft.testing import REPO_ID, TINY_TYPES, TinyPaths, load_frames, make_tiny, select

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 2**20


@pytest.fixture(params=TINY_TYPES)
def tiny(request: pytest.FixtureRequest, make_tiny_once: Callable[[str], TinyPaths]) -> TinyPaths:
    return make_tiny_once(request.param)


def test_lerobot_loads_every_weight_as_it_was_saved(tiny: TinyPaths) -> None:
    config = PreTrainedConfig.from_pretrained(tiny.policy)
    config.pretrained_path = tiny.policy
    policy = make_policy(config, ds_meta=LeRobotDataset(REPO_ID, root=tiny.data).meta)
    saved = load_file(tiny.policy / "model.safetensors")
    state = policy.state_dict()
    assert saved
    # pi0's `from_pretrained` returns random weights when loading fails, so looking at them is the only proof.
    for name, value in saved.items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=0)
    shared = {value.data_ptr() for name, value in state.items() if name in saved}
    assert all(value.data_ptr() in shared for value in state.values())


def test_the_whole_stock_path_from_frame_to_robot_action(tiny: TinyPaths) -> None:
    config = PreTrainedConfig.from_pretrained(tiny.policy)
    config.pretrained_path = tiny.policy
    meta = LeRobotDataset(REPO_ID, root=tiny.data).meta
    policy = make_policy(config, ds_meta=meta)
    preprocess, postprocess = make_pre_post_processors(config, pretrained_path=str(tiny.policy))
    frames = load_frames(config, tiny.data)
    batch = preprocess(select(frames, torch.arange(2)))
    policy.train()
    loss, _ = policy.forward(batch)
    loss.backward()
    assert loss.isfinite()
    policy.eval()
    policy.reset()
    observation = {
        key: value[:, -1] if value.ndim == (5 if "image" in key else 3) else value
        for key, value in preprocess(select(frames, torch.arange(1))).items()
        if key.startswith("observation") and not key.endswith("_is_pad")
    }
    action = postprocess(policy.select_action(observation))
    assert action.shape == (1, 3)
    assert action.isfinite().all()


def test_size_and_data(tiny: TinyPaths) -> None:
    for folder in (tiny.policy, tiny.data):
        assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 4 * MEGABYTE
    dataset = LeRobotDataset(REPO_ID, root=tiny.data)
    assert dataset.num_episodes == 4
    assert len(dataset.meta.tasks) == 2
    assert dataset.meta.camera_keys == ["observation.images.front", "observation.images.wrist"]
    assert dataset.meta.video_keys == []


def test_two_builds_are_the_same_and_leave_the_random_state(tmp_path: Path) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = make_tiny("act", tmp_path / "first")
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    second = make_tiny("act", tmp_path / "second")
    weights = sorted(file.name for file in first.policy.glob("*.safetensors"))
    assert len(weights) == 3
    for name in weights:
        assert (first.policy / name).read_bytes() == (second.policy / name).read_bytes()
    # LeRobot writes the path of each image into the data file, so the frames are equal and its bytes are not.
    config = PreTrainedConfig.from_pretrained(first.policy)
    frames = load_frames(config, second.data)
    for key, value in load_frames(config, first.data).items():
        assert torch.equal(value, frames[key]) if isinstance(value, torch.Tensor) else value == frames[key]
    with pytest.raises(CraftError, match=r"already holds .*policy.*; remove it"):
        make_tiny("act", tmp_path / "first")


def test_unknown_type() -> None:
    with pytest.raises(CraftError, match="`policy_type` is 'pi7', expected one of act, diffusion"):
        make_tiny("pi7", "unused")


def test_checkpoints_name_nothing_on_the_hub(tiny: TinyPaths) -> None:
    written = json.loads((tiny.policy / "policy_preprocessor.json").read_text())
    names = [
        value
        for step in written["steps"]
        for key, value in step.get("config", {}).items()
        if key.endswith("tokenizer_name") and value
    ]
    assert all(Path(name).is_dir() for name in names), names


def test_the_action_tokenizer_survives_saving(make_tiny_once: Callable[[str], TinyPaths]) -> None:
    paths = make_tiny_once("pi0_fast")
    config = PreTrainedConfig.from_pretrained(paths.policy)
    frames = load_frames(config, paths.data)
    stats = LeRobotDataset(REPO_ID, root=paths.data).meta.stats
    fresh, _ = make_pre_post_processors(config, dataset_stats=stats)
    saved, _ = make_pre_post_processors(config, pretrained_path=str(paths.policy))
    batch = select(frames, torch.arange(8))
    assert torch.equal(fresh(batch)["action.tokens"], saved(batch)["action.tokens"])


def test_action_tokens_decode_to_the_actions(
    make_tiny_once: Callable[[str], TinyPaths], caplog: pytest.LogCaptureFixture
) -> None:
    paths = make_tiny_once("pi0_fast")
    config = PreTrainedConfig.from_pretrained(paths.policy)
    config.pretrained_path = paths.policy
    policy = make_policy(config, ds_meta=LeRobotDataset(REPO_ID, root=paths.data).meta)
    preprocess, _ = make_pre_post_processors(config, pretrained_path=str(paths.policy))
    batch = preprocess(load_frames(config, paths.data))
    with caplog.at_level(logging.WARNING):
        decoded = policy.detokenize_actions(batch["action.tokens"][:, 1:], action_horizon=8, action_dim=3)
    assert "Error decoding" not in caplog.text
    # Rounding to a tenth moves a coefficient by at most 0.05, and the transform keeps lengths.
    assert (decoded - batch["action"]).abs().max() <= 0.05 * 8**0.5


# Importing LeRobot once more is most of it; on a busy machine that takes a minute.
@pytest.mark.timeout(300)
def test_stock_training_command_finds_the_tiny_type(make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path) -> None:
    paths = make_tiny_once("pi0_fast")
    command = [
        *(sys.executable, "-m", "lerobot.scripts.lerobot_train"),
        "--discover_packages_path=lerobot_craft.testing",
        *(f"--policy.path={paths.policy}", f"--dataset.repo_id={REPO_ID}", f"--dataset.root={paths.data}"),
        *("--steps=2", "--batch_size=2", "--num_workers=0", "--save_checkpoint=true", "--wandb.enable=false"),
        *("--policy.push_to_hub=false", "--policy.device=cpu", f"--output_dir={tmp_path / 'out'}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    saved = PreTrainedConfig.from_pretrained(tmp_path / "out/checkpoints/last/pretrained_model")
    assert saved.type == "pi0_fast_tiny"


@pytest.mark.timeout(300)
def test_script(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "make_tiny.py"
    (tmp_path / "policy").mkdir()
    done = subprocess.run([sys.executable, script, "act", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("remove it or name another folder.")
