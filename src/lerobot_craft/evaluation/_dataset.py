# SPDX-License-Identifier: Apache-2.0
"""Demonstrations as a LeRobotDataset: states, the instruction as text and as a vector, actions; no images."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasets
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from lerobot_craft.evaluation._demonstrations import Demonstration
from lerobot_craft.evaluation._tasks import (
    ACTION_SIZE,
    FPS,
    INSTRUCTION_SIZE,
    STATE_SIZE,
    instruction,
    instruction_vector,
)

STATE = "observation.state"
INSTRUCTION = "observation.environment_state"

FEATURES: dict[str, dict[str, Any]] = {
    STATE: {"dtype": "float32", "shape": (STATE_SIZE,), "names": None},
    INSTRUCTION: {"dtype": "float32", "shape": (INSTRUCTION_SIZE,), "names": None},
    "action": {"dtype": "float32", "shape": (ACTION_SIZE,), "names": ["x", "y", "z", "gripper"]},
}


def write_dataset(root: Path, repo_id: str, demonstrations: Iterable[Demonstration]) -> None:
    """Write demonstrations as a LeRobotDataset; `root` appears only once it is whole.

    Args:
        root: Its folder, which must not exist.
        repo_id: Its id.
        demonstrations: The episodes, in their order.
    """
    partial = root.with_name(f"{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    # One bar per episode would drown the caller's own progress.
    datasets.disable_progress_bars()
    dataset = LeRobotDataset.create(
        repo_id, fps=FPS, features=FEATURES, root=partial, robot_type="sawyer", use_videos=False
    )
    for episode in demonstrations:
        text = instruction(episode.task)
        vector = instruction_vector(text)
        for state, action in zip(episode.states, episode.actions, strict=True):
            dataset.add_frame({STATE: state, INSTRUCTION: vector, "action": action, "task": text})
        dataset.save_episode()
    dataset.finalize()
    partial.rename(root)
