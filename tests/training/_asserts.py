# SPDX-License-Identifier: Apache-2.0
"""Properties of runs, named as functions and shared by tests."""

import json
from pathlib import Path


def files_of(checkpoint: Path) -> dict[str, object]:
    """Return every file of a checkpoint but LeRobot's settings, which name the output folder, and PEFT's model card."""
    files: dict[str, object] = {}
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file() and path.name not in ("train_config.json", "README.md"):
            files[str(path.relative_to(checkpoint))] = path.read_bytes()
            if path.name == "config.json":
                # LeRobot writes where it loaded the weights from: the teacher, or the checkpoint of a resumed run.
                files[str(path.relative_to(checkpoint))] = json.loads(path.read_text()) | {"pretrained_path": None}
    return files


def assert_same_checkpoint(one: Path, other: Path) -> None:
    """Weights, optimizer, schedule, random state, processors and our own state are the same, bit for bit."""
    left, right = files_of(one), files_of(other)
    assert left.keys() == right.keys()
    assert "pretrained_model/model.safetensors" in left or "pretrained_model/adapter_model.safetensors" in left
    assert "training_state/optimizer_state.safetensors" in left
    different = [name for name in left if left[name] != right[name]]
    assert different == [], different
