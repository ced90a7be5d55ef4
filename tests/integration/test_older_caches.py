# SPDX-License-Identifier: Apache-2.0
"""Caches of the older tools train: folders with `metadata.json` and `shard_0000.pt`, in all three kinds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests._command import craft

from lerobot_craft.testing import TinyPaths, load_frames

pytestmark = pytest.mark.timeout(300)  # making a tiny policy takes up to a minute the first time


def write_older(folder: Path, tiny: TinyPaths, target: str) -> None:
    """Write a cache as the older tools did, of what the teacher itself says."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    from lerobot_craft.policies import make_tap, teacher_tokens

    config = PreTrainedConfig.from_pretrained(tiny.policy)
    policy = get_policy_class(config.type).from_pretrained(tiny.policy, config=config)
    pre, _ = make_pre_post_processors(config, pretrained_path=str(tiny.policy))
    frames = load_frames(config, tiny.data)
    batch = {name: value[:6] for name, value in pre(frames).items() if isinstance(value, torch.Tensor)}
    cameras = list(config.image_features)
    shard = {
        "pixel_values": torch.stack([batch[camera] for camera in cameras], dim=1) * 2 - 1,
        "input_ids": batch["observation.language.tokens"],
        "attention_mask": batch["observation.language.attention_mask"].long(),
        "meta": {"note": "as the older tools wrote it"},
    }
    metadata: dict[str, object] = {"num_shards": 1}
    if target == "labels":
        said = teacher_tokens(policy, batch, seed=0)
        shard[target] = said.tokens.masked_fill(~said.mask, -100)
    elif target == "teacher_hidden":
        shard[target] = make_tap(policy, layers=(-2, -1)).features(batch, "vision_mean_text_last").detach()
        metadata["layers_to_save"] = [-2, -1]
    else:
        shard[target] = make_tap(policy, layers=(-2,)).features(batch, "mean_image_tokens").detach()
        metadata |= {"hidden_layer": -2, "pooling": "mean_image_tokens"}
    folder.mkdir()
    torch.save(shard, folder / "shard_0000.pt")
    (folder / "metadata.json").write_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("target", "mode"), [("teacher_hidden", "hidden"), ("target_features", "hidden"), ("labels", "token_ce")]
)
def test_older_cache_trains(target: str, mode: str, make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path) -> None:
    tiny = make_tiny_once("pi0_fast")
    write_older(tmp_path / "cache", tiny, target)
    words = [
        *(f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"),
        *("--steps=2", "--batch_size=2", "--num_workers=0", "--log_freq=1", "--dataset.video_backend=pyav"),
        *(f"--output_dir={tmp_path / 'run'}", "--save_checkpoint=false", f"--craft.retention_mode={mode}"),
        *(f"--craft.anchor_cache_dir={tmp_path / 'cache'}", "--craft.anchor_batch_size=2", "craft.retention_freq=1"),
    ]
    done = craft(["train", *words])
    assert done.code == 0, done.text
    assert "it is taken on trust" in done.text, "an older cache does not name its teacher, and the run says so"
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    if mode == "hidden":
        assert rows[0]["craft/retention_loss"] < 1e-6, "the inputs are the teacher's own: the student starts as it"
    else:
        assert 0 < rows[0]["craft/retention_loss"] < 2
