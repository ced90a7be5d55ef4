# SPDX-License-Identifier: Apache-2.0
"""Invented results in the formats the report reads, so that its tests need no training; asserts nothing."""

import json
import random
from pathlib import Path
from typing import Any

# Name: title, success on the old tasks, success on the new one, time against plain.
METHODS: dict[str, tuple[str, float, float, float]] = {
    "lerobot": ("plain, as LeRobot does it", 0.02, 0.98, 1.0),
    "plain": ("plain, teacher's statistics", 0.25, 0.97, 1.0),
    "craft": ("CRaFT", 0.95, 0.96, 1.9),
    "hidden": ("CRaFT, hidden, frozen behind", 0.90, 0.84, 1.6),
    "action": ("CRaFT, action", 0.93, 0.95, 1.8),
    "replay": ("replay (old labels)", 0.94, 0.93, 1.8),
    "ewc": ("EWC", 0.60, 0.90, 1.3),
    "l2sp": ("L2-SP", 0.35, 0.92, 1.2),
    "lwf": ("LwF (fixed λ)", 0.88, 0.97, 1.7),
    "agem": ("A-GEM", 0.75, 0.94, 2.1),
    "merge": ("interpolation", 0.30, 0.56, 1.0),
    "freeze": ("frozen parts", 0.55, 0.62, 0.8),
    "lora": ("LoRA", 0.41, 0.88, 1.1),
    "prompts": ("CRaFT, no old data", 0.58, 0.81, 1.9),
}
SPLITS = [
    {"name": "drawer", "old_tasks": ["hammer", "push", "reach"], "new_tasks": ["drawer-open"]},
    {"name": "window", "old_tasks": ["hammer", "push", "reach"], "new_tasks": ["window-open"]},
    {"name": "cw5", "old_tasks": ["hammer", "push"], "new_tasks": ["faucet", "shelf", "handle", "stick", "peg"]},
]
SEEDS = [0, 1, 2]


def comparison(**changes: Any) -> dict[str, Any]:
    """Return a comparison of all methods over two splits and a sequence."""
    dice = random.Random(0)  # noqa: S311 (no secret)
    known = [
        {"problem": split["name"], "seed": seed, "success_by_task": dict.fromkeys(split["old_tasks"], 0.95)}
        for split in SPLITS
        for seed in SEEDS
    ]
    teacher = {"old_success": _estimate(0.97, 0.02), "new_success": _estimate(0.03, 0.02), "runs": known}
    whole = {
        "format": "lerobot-craft comparison",
        "schema": 1,
        "version": "0.1.0",
        "command": "lerobot-craft compare --methods=plain,craft,replay --seeds=0,1,2 --output_dir=outputs/comparison",
        "settings": {"steps": 300, "demos": 30},
        "seeds": SEEDS,
        "episodes_per_task": 20,
        "wall_s": 5400.0,
        "problems": SPLITS,
        "teacher": teacher,
        "methods": {name: _method(name, dice) for name in METHODS},
    }
    return {**whole, **changes}


def drift(**changes: Any) -> dict[str, Any]:
    """Return the drift of three checkpoints of which the last is over the limit."""
    checkpoints = [_checkpoint(step, size) for step, size in ((100, 0.05), (200, 0.11), (300, 0.42))]
    whole = {
        "format": "lerobot-craft drift",
        "schema": 1,
        "version": "0.1.0",
        "teacher": "outputs/teacher",
        "dataset": "me/old",
        "policy_type": "smolvla",
        "episodes": 20,
        "frames": 400,
        "max_drift": 0.2,
        "keep": checkpoints[1]["path"],
        "checkpoints": checkpoints,
    }
    return {**whole, **changes}


def run_folder(folder: Path, *, steps: int = 300, until: int = 300) -> Path:
    """Write a run with retention as training writes it, up to a step."""
    folder.mkdir(parents=True)
    record = {
        "format": "lerobot-craft run",
        "schema": 1,
        "version": "0.1.0",
        "command": f"lerobot-craft train --policy.path=outputs/teacher --output_dir={folder} --craft.preset=craft",
        "steps": steps,
        "conflict_threshold": -0.1,
        "anchor_cache_dir": None,
        "settings": {"craft.preset": {"value": "craft", "default": None}, "steps": {"value": steps, "default": 100000}},
        "normalization": [
            {
                "feature": "observation.state",
                "mode": "MEAN_STD",
                "dimensions": 39,
                "reach": 5.4,
                "outside": 0.1,
                "widened": [3, 7],
                "added": False,
            }
        ],
    }
    (folder / "run.json").write_text(json.dumps(record))
    rows = [
        {
            "step": step,
            "loss": 3 / (1 + step / 20),
            "update_s": 0.02,
            "dataloading_s": 0.001,
            "craft/retention_loss": 0.05 / (1 + step / 100),
            "craft/epsilon": 0.02,
            "craft/violation": 0.05 / (1 + step / 100) - 0.02,
            "craft/multiplier": 1 + step / 100,
            "craft/cosine": 0.3 - step / 500,
            "craft/conflict": float(0.3 - step / 500 < -0.1),
        }
        for step in range(1, until + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def demo_folder(folder: Path) -> Path:
    """Write a finished demo as `lerobot-craft demo` leaves it, as far as the report looks at it."""
    settings = {"old_tasks": ["reach", "push"], "new_task": "drawer-open", "demos": 30, "teacher_steps": 1200}
    stages: dict[str, Any] = {"data": {"seconds": 9.0, "longest_episode": {}}, "teacher": {"seconds": 12.0}}
    ends = {"teacher": (9, 10, 0), "plain": (0, 0, 10), "plain_teacher_statistics": (0, 5, 10), "craft": (9, 9, 10)}
    for name, successes in ends.items():
        stages.setdefault(name, {"seconds": 7.0 if name == "craft" else 3.5})
        tasks = [*settings["old_tasks"], settings["new_task"]]
        outcomes = {task: [i < n for i in range(10)] for task, n in zip(tasks, successes, strict=True)}
        stages[f"evaluate {name}"] = {"seconds": 8.0, "episodes": 10, "outcomes": outcomes}
        run_folder(folder / "runs" / name, until=100, steps=100)
    write(folder / "stages.json", {"settings": {**settings, "steps": 100, "seed": 0}, "stages": stages})
    return folder


def write(path: Path, values: dict[str, Any]) -> Path:
    """Write a JSON file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
    return path


def _estimate(mean: float, half: float) -> dict[str, Any]:
    return {"mean": mean, "low": max(0.0, mean - half), "high": mean + half, "values": [mean] * len(SEEDS)}


def _method(name: str, dice: random.Random) -> dict[str, Any]:
    title, old, new, ratio = METHODS[name]
    tried = [{"value": 10.0**p, "old_success": old - 0.1 * p, "new_success": new, "score": old + new} for p in (-1, 0)]
    return {
        "title": title,
        "command": f"lerobot-craft train --craft.preset={name} --policy.path=outputs/comparison/teacher --steps=300",
        "strength": {"setting": "craft.initial_lambda", "chosen": 1.0, "tried": tried} if name == "replay" else None,
        "old_success": _estimate(old, 0.03),
        "new_success": {**_estimate(new, 0.04), "high": min(1.0, new + 0.04)},
        "average_success": _estimate((old + new) / 2, 0.03),
        "forgetting": {**_estimate(0.97 - old, 0.03), "low": 0.94 - old},
        "fwt": _estimate(new, 0.04),
        "auc": _estimate((old + new) / 2, 0.03),
        "drift": _estimate(1.2 - old, 0.05),
        "train_s": _estimate(10 * ratio, 0.5),
        "time_ratio": _estimate(ratio, 0.05),
        "peak_memory_mib": _estimate(500 + 40 * ratio, 3),
        "stored_bytes": _estimate(0 if name in ("lerobot", "plain") else 104_000, 0),
        "runs": [_student(split, seed, old, new, dice) for split in SPLITS for seed in SEEDS],
    }


def _student(split: dict[str, Any], seed: int, old: float, new: float, dice: random.Random) -> dict[str, Any]:
    stages = []
    for number, task in enumerate(split["new_tasks"]):
        success = {name: _near(old ** (1 + number / 3), dice) for name in split["old_tasks"]}
        success |= {
            name: _near(new * old ** ((number - place) / 3), dice)
            for place, name in enumerate(split["new_tasks"][: number + 1])
        }
        drifts = {name: max(0.0, 1.2 - old) * (1 + dice.random()) for name in split["old_tasks"]}
        stages.append({"new_task": task, "success_by_task": success, "episodes": 20, "drift_by_task": drifts})
    return {"problem": split["name"], "seed": seed, "stages": stages}


def _near(rate: float, dice: random.Random) -> float:
    return round(min(1.0, max(0.0, rate + dice.uniform(-0.05, 0.05))) * 20) / 20


def _checkpoint(step: int, size: float) -> dict[str, Any]:
    layers = ["vision", *(f"layers.{number}" for number in range(6)), "action_head"]
    return {
        "path": f"outputs/run/checkpoints/{step:06d}/pretrained_model",
        "step": step,
        "verdict": "over" if size > 0.2 else "keep",
        "over": size > 0.2,
        "action": {
            "all": _estimate(size, 0.02),
            "by_task": {
                task: _estimate(size * (1 + 0.2 * i), 0.03) for i, task in enumerate(("push", "reach", "lift"))
            },
            "by_joint": {f"joint {i}": _estimate(size * (0.5 + 0.2 * i), 0.02) for i in range(7)},
        },
        "token_kl": None,
        "features": [
            {
                "layer": layer,
                "relative_l2": _estimate(size * (i + 1) / 4, 0.01),
                "cosine": _estimate(1 - size / 10, 0.0),
                "cka": 1 - size / 5,
            }
            for i, layer in enumerate(layers)
        ],
        "language": {
            "teacher": _estimate(1.1, 0.1),
            "student": _estimate(1.1 - 2 * size, 0.1),
            "ratio": 1 - 1.8 * size,
            "ignores": size > 0.4,
        },
        "weights": {"all": _estimate(size, 0.02)},
        "statistics": {"all": _estimate(0.0, 0.0)},
    }
