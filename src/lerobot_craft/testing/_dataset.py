# SPDX-License-Identifier: Apache-2.0
"""A small LeRobotDataset of two tasks that a tiny policy can learn, made offline. No physics in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

if TYPE_CHECKING:
    from pathlib import Path

REPO_ID = "craft/tiny"
FPS = 10
EPISODES = 4
FRAMES = 16
IMAGE_SIZE = 64
STATE_DIM = 4
ACTION_DIM = 3
CAMERAS = ("observation.images.front", "observation.images.wrist")
TASKS = ("push the red block", "lift the blue cup slowly")

_IMAGE: dict[str, object] = {
    "dtype": "image",
    "shape": (IMAGE_SIZE, IMAGE_SIZE, 3),
    "names": ["height", "width", "channels"],
}
FEATURES: dict[str, dict[str, object]] = {
    "observation.state": {"dtype": "float32", "shape": (STATE_DIM,), "names": ["x", "y", "z", "grip"]},
    "action": {"dtype": "float32", "shape": (ACTION_DIM,), "names": ["dx", "dy", "grip"]},
    **dict.fromkeys(CAMERAS, _IMAGE),
}


def make_data(directory: Path) -> LeRobotDataset:
    """Write the dataset to `directory` and return it opened for reading.

    Images are stored as PNG inside the parquet files, so that no video codec is needed. Episodes alternate
    between the two tasks; the same call always writes the same frames.
    """
    dataset = LeRobotDataset.create(REPO_ID, fps=FPS, features=FEATURES, root=directory, use_videos=False)
    for episode in range(EPISODES):
        for frame in range(FRAMES):
            dataset.add_frame(_frame(episode, frame))
        dataset.save_episode()
    dataset.finalize()
    return LeRobotDataset(REPO_ID, root=directory)


def _frame(episode: int, frame: int) -> dict[str, object]:
    task = episode % len(TASKS)
    phase = 2 * math.pi * (frame / FRAMES + 0.1 * (episode // len(TASKS)))
    turn = phase if task == 0 else -2 * phase
    state = [math.cos(phase), math.sin(phase), 0.5 * math.cos(turn), float(frame > FRAMES // 2)]
    action = [math.sin(turn), math.cos(turn), math.sin(turn + task)]
    return {
        "observation.state": np.asarray(state, dtype=np.float32),
        "action": np.asarray(action, dtype=np.float32),
        CAMERAS[0]: _image(state[0], state[1], channel=2 * task),
        CAMERAS[1]: _image(state[2], state[3], channel=1),
        "task": TASKS[task],
    }


def _image(x: float, y: float, channel: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    image = np.full((IMAGE_SIZE, IMAGE_SIZE, 3), 40, dtype=np.uint8)
    row, column = (round((v + 1) / 2 * (IMAGE_SIZE - 8)) for v in (y, x))
    image[row : row + 8, column : column + 8, channel] = 220
    return image
