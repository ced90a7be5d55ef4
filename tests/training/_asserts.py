# SPDX-License-Identifier: Apache-2.0
"""Properties of runs, named as functions and shared by tests."""

from pathlib import Path


def files_of(checkpoint: Path) -> dict[str, bytes]:
    """Return every file of a checkpoint but LeRobot's settings, which name the output folder."""
    return {
        str(path.relative_to(checkpoint)): path.read_bytes()
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != "train_config.json"
    }


def assert_same_checkpoint(one: Path, other: Path) -> None:
    """Weights, optimizer, schedule, random state, processors and our own state are the same, bit for bit."""
    left, right = files_of(one), files_of(other)
    assert left.keys() == right.keys()
    assert "pretrained_model/model.safetensors" in left or "pretrained_model/adapter_model.safetensors" in left
    assert "training_state/optimizer_state.safetensors" in left
    different = [name for name in left if left[name] != right[name]]
    assert different == []
