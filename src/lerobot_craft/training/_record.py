# SPDX-License-Identifier: Apache-2.0
"""`run.json`: what a run was started with, for whoever looks at it later; training itself never reads it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import draccus

from lerobot_craft.training._build import Run
from lerobot_craft.training._compat import TrainPipelineConfig
from lerobot_craft.training._config import CraftConfig
from lerobot_craft.training._retention import Retention

RECORD_NAME = "run.json"
# Where a run is, and what LeRobot derives from other settings or from the data.
NOT_CHOSEN = (
    *("output_dir", "job_name", "checkpoint_path", "optimizer", "scheduler", "craft.dry_run"),
    *("policy.input_features", "policy.output_features", "policy.pretrained_path", "policy.device"),
)


def write_record(run: Run, retention: Retention | None, teacher: str | None, words: Sequence[str]) -> None:
    """Write the record of a run that begins; for the main process.

    Args:
        run: The run.
        retention: What is retained; None is plain training.
        teacher: The policy the run starts from.
        words: The words after `lerobot-craft train`; empty where nobody typed any.
    """
    parameters = list(run.model.parameters())
    record = {
        "format": "lerobot-craft run",
        "schema": 1,
        "version": version("lerobot-craft"),
        "command": shlex.join(["lerobot-craft", "train", *words]) if words else None,
        "teacher": teacher,
        "policy_type": run.cfg.policy.type,
        "dataset": run.cfg.dataset.repo_id,
        "steps": run.cfg.steps,
        "batch_size": run.cfg.batch_size * run.accelerator.num_processes,
        "retention_mode": None if retention is None else run.craft.retention_mode,
        "conflict_threshold": run.craft.conflict_threshold,
        "anchors": None if retention is None else retention.anchors,
        "anchor_cache_dir": None if run.craft.anchor_cache_dir is None else str(run.craft.anchor_cache_dir),
        "parameters": sum(p.numel() for p in parameters),
        "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "settings": chosen_settings(run.cfg, run.craft),
        "normalization": [row._asdict() for row in run.normalization],
    }
    path = Path(run.cfg.output_dir) / RECORD_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=2) + "\n")
    partial.replace(path)


def chosen_settings(cfg: TrainPipelineConfig, craft: CraftConfig) -> dict[str, dict[str, Any]]:
    """Return the settings that differ from their defaults, as `{name: {"value": …, "default": …}}`."""
    default = TrainPipelineConfig(dataset=type(cfg.dataset)(repo_id=""), policy=type(cfg.policy)())
    with draccus.config_type("json"):
        value, usual = (json.loads(draccus.dump(one) or "{}") for one in (cfg, default))
    values = _flat({**value, "craft": craft.to_dict()})
    defaults = _flat({**usual, "craft": CraftConfig().to_dict()})
    return {
        name: {"value": value, "default": defaults.get(name)}
        for name, value in values.items()
        if value != defaults.get(name) and not any(name == part or name.startswith(f"{part}.") for part in NOT_CHOSEN)
    }


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
