# SPDX-License-Identifier: Apache-2.0
"""Rollouts and sample weights during training are wired as in LeRobot; no simulator is installed for tests."""

import json
from pathlib import Path

import pytest
import torch
from tests._command import craft
from tests._problem import Problem

from lerobot_craft.training import _compat

L2SP = {"craft__retention_mode": "l2sp", "craft__retention_freq": 1, "steps": 4, "log_freq": 1}


def test_rollouts_every_so_many_steps(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    calls = []

    def evaluate(**kwargs: object) -> dict[str, object]:
        calls.append(kwargs)
        overall = {"eval_s": 1.5, "avg_sum_reward": 0.25, "pc_success": 50.0, "video_paths": []}
        return {"overall": overall}

    monkeypatch.setattr(_compat, "make_env", lambda cfg, n_envs, use_async_envs: {"envs": n_envs})
    monkeypatch.setattr(_compat, "close_envs", closed.append)
    monkeypatch.setattr(_compat, "eval_policy_all", evaluate)
    monkeypatch.setattr(_compat, "make_env_pre_post_processors", lambda env_cfg, policy_cfg: ("before", "after"))
    changes = {"env__type": "pusht", "env_eval_freq": 2, "eval__n_episodes": 1, "eval__batch_size": 1}
    done = craft(["train", *problem.flags(tmp_path / "run", **L2SP, **changes)])
    assert done.code == 0, done.text
    assert len(calls) == 2
    assert closed == [{"envs": 1}] * 2
    assert calls[0]["env_preprocessor"] == "before"
    assert calls[0]["n_episodes"] == 1
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    successes = [(row["step"], row["pc_success"]) for row in rows if row.get("event") == "rollouts"]
    assert successes == [(2, 50.0), (4, 50.0)]


def test_sample_weights_reach_the_loss(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lerobot.policies.act.modeling_act import ACTPolicy

    class Weighter:
        def compute_batch_weights(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
            weights = torch.zeros(len(batch["action"]))
            weights[0] = len(weights)
            return weights, {"mean": float(weights.mean())}

        def get_stats(self) -> dict[str, float]:
            return {"zeroed": 7.0}

    seen = []

    def forward(self: ACTPolicy, batch: dict[str, torch.Tensor], reduction: str = "mean") -> object:
        seen.append(reduction)
        per_sample = self.model(batch)[0].square().mean(dim=(1, 2))
        return per_sample, {}

    monkeypatch.setattr(_compat, "make_sample_weighter", lambda *args, **kwargs: Weighter())
    monkeypatch.setattr(ACTPolicy, "forward", forward)
    changes = {"sample_weighting__type": "rabc", "sample_weighting__progress_path": "unused"}
    done = craft(["train", *problem.flags(tmp_path / "run", **{**L2SP, "steps": 1}, **changes)])
    assert done.code == 0, done.text
    assert seen == ["none"]
    row = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[0])
    assert row["sample_weight_mean"] == 1.0
