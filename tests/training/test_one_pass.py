# SPDX-License-Identifier: Apache-2.0
"""Anchors as further rows of the task batch: when they may be, and that a run then trains so."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests._command import craft
from torch import nn

from lerobot_craft.testing import TinyPaths
from lerobot_craft.training._one_pass import Joined, OnePass, join_batches, modes_agree

ANNOUNCED = "Anchors are further rows of the task batch"


def batch(rows: int, tokens: int, **more: torch.Tensor) -> dict[str, Any]:
    return {
        "observation.state": torch.ones(rows, 3),
        "observation.language.tokens": torch.ones(rows, tokens, dtype=torch.long),
        "observation.language.attention_mask": torch.ones(rows, tokens, dtype=torch.bool),
        "action": torch.ones(rows, 5, 2),
        "task": ["open"] * rows,
        "index": torch.arange(rows),
        **more,
    }


def test_rows_are_put_below_and_instructions_padded() -> None:
    joined = join_batches(batch(4, 6), batch(2, 9))
    assert joined is not None
    assert joined["observation.language.tokens"].shape == (6, 9)
    assert joined["observation.language.attention_mask"].sum(1).tolist() == [6, 6, 6, 6, 9, 9]
    assert joined["action"].shape == (6, 5, 2)
    assert set(joined) == {name for name in batch(1, 1) if "." in name} | {"action"}


def test_actions_nobody_calls_padding_are_none() -> None:
    padded = torch.tensor([[False, False, True, True, True]])
    joined = join_batches(batch(1, 2, action_is_pad=padded), batch(2, 2))
    assert joined is not None
    assert joined["action_is_pad"].sum(1).tolist() == [3, 0, 0]


def test_what_one_of_them_lacks_takes_two_passes() -> None:
    camera = {"observation.images.wrist": torch.ones(2, 3, 8, 8)}
    assert join_batches(batch(4, 6), batch(2, 6, **camera)) is None
    small = {"observation.images.wrist": torch.ones(4, 3, 4, 4)}
    assert join_batches(batch(4, 6, **small), batch(2, 6, **camera)) is None
    # Unless the policy's loss does not read it.
    without = {name: value for name, value in batch(2, 6).items() if name != "action"}
    assert join_batches(batch(4, 6), without) is None
    assert join_batches(batch(4, 6), without, frozenset({"action"})) is not None


@pytest.mark.parametrize(
    ("layer", "agree"),
    [
        (nn.Linear(2, 2), True),
        (nn.Dropout(0.0), True),
        (nn.Dropout(0.1), False),
        (nn.BatchNorm1d(2), False),
        (nn.MultiheadAttention(4, 2), True),
        (nn.MultiheadAttention(4, 2, dropout=0.1), False),
    ],
)
def test_dropout_takes_two_passes(layer: nn.Module, *, agree: bool) -> None:
    assert modes_agree(nn.Sequential(nn.Linear(2, 2), layer)) is agree


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("policy_type", "mode"), [("smolvla", "action"), ("pi0_fast", "token_ce"), ("pi05", "replay")])
def test_a_run_trains_in_one_pass_except_where_the_log_wants_more(
    policy_type: str,
    mode: str,
    make_tiny_once: Callable[[str], TinyPaths],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny = make_tiny_once(policy_type)
    source = [f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"]
    kind = "tokens" if mode == "token_ce" else mode
    cache = [*source, f"--kinds={kind}", f"--output_dir={tmp_path / 'cache'}", "--num_anchors=10"]
    built = craft(["cache", *cache])
    assert built.code == 0, built.text
    found: list[Joined | None] = []
    losses = OnePass.losses

    def watched(self: OnePass, step: int, batch: dict[str, Any], *, statistics: bool) -> Joined | None:
        found.append(losses(self, step, batch, statistics=statistics))
        return found[-1]

    monkeypatch.setattr(OnePass, "losses", watched)
    words = [
        *(f"--output_dir={tmp_path / 'run'}", "--steps=4", "--batch_size=4", "--log_freq=2", "--num_workers=0"),
        *("--dataset.video_backend=pyav", "--save_checkpoint=false", "--craft.preset=lwf"),
        *(f"--craft.retention_mode={mode}", f"--craft.anchor_cache_dir={tmp_path / 'cache'}"),
        "--craft.anchor_batch_size=2",
    ]
    done = craft(["train", *source, *words])
    assert done.code == 0, done.text
    assert [joined is not None for joined in found] == [True, False, True, False]
    assert ANNOUNCED in done.text
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    assert all(math.isfinite(row["craft/retention_loss"]) and math.isfinite(row["loss"]) for row in rows)


@pytest.mark.timeout(300)
def test_a_run_that_projects_does_not_promise_one_pass(
    make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path
) -> None:
    tiny = make_tiny_once("smolvla")
    source = [f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"]
    built = craft(["cache", *source, "--kinds=action", f"--output_dir={tmp_path / 'cache'}", "--num_anchors=10"])
    assert built.code == 0, built.text
    words = [f"--output_dir={tmp_path / 'run'}", "--steps=1", "--batch_size=2", "--num_workers=0", "--log_freq=1"]
    words += ["--dataset.video_backend=pyav", "--save_checkpoint=false", "--craft.retention_mode=action"]
    done = craft(["train", *source, *words, f"--craft.anchor_cache_dir={tmp_path / 'cache'}"])
    assert done.code == 0, done.text
    assert ANNOUNCED not in done.text
