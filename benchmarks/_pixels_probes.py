# SPDX-License-Identifier: Apache-2.0
"""What a policy does with words: old instructions in new scenes, and paraphrases; in units of the actions' spread."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from _pixels_data import ACTION, STATE, frames_file
from _pixels_policy import EXECUTED
from _pixels_rollout import Actor
from _pixels_tasks import HELD_OUT, phrases

NOISE_SEED = 7


@dataclass(frozen=True)
class Scenes:
    """Frames to ask about.

    Attributes:
        images: [frames, height, width, 3].
        states: [frames, 4].
    """

    images: Any
    states: Any


class Probes:
    """The probes of one benchmark; the teacher's answers are remembered.

    Args:
        old: Folder of the old tasks' data.
        new: Folder of the new task's data.
        old_tasks: Names of the old tasks.
        new_task: Name of the new task.
        frames: Frames per old task.
    """

    def __init__(self, old: Path, new: Path, old_tasks: tuple[str, ...], new_task: str, frames: int) -> None:
        self._tasks, self._new_task = old_tasks, new_task
        data = {name: LeRobotDataset(f"pixels/{name}", root=root) for name, root in (("old", old), ("new", new))}
        actions = [np.asarray(each.hf_dataset.with_format("numpy")[ACTION]) for each in data.values()]
        # Over old and new: the gripper never moves in the old tasks, so their data alone has no unit for it.
        self._unit = np.concatenate(actions).std(0)
        self._new = _spread(data["new"], new, frames * len(old_tasks))
        self._old: dict[str, Scenes] = {task: _spread(data["old"], old, frames, phrases(task)) for task in old_tasks}
        self._teachers: dict[Path, dict[str, Any]] = {}

    def measure(self, actor: Actor, teacher: Path, device: str) -> dict[str, float]:
        """Return the distances of a policy's actions: from its teacher's, and between its own."""
        if teacher not in self._teachers:
            self._teachers[teacher] = self._answers(Actor(teacher, device))
        before, after = self._teachers[teacher], self._answers(actor)
        return {
            # Old instruction, new scene: is it still the teacher's action, or already the new task's?
            "old_words_new_scene_from_teacher": self._distance(after["swapped"], before["swapped"]),
            "old_words_new_scene_from_new_words": self._distance(after["swapped"], after["new"]),
            "old_words_old_scene_from_teacher": self._distance(after["old"], before["old"]),
            "paraphrase_from_teacher": self._distance(after["paraphrased"], before["old"]),
            "wrong_words_old_scene_from_right_words": self._distance(after["wrong"], after["old"]),
        }

    def _answers(self, actor: Actor) -> dict[str, Any]:
        turns = len(self._new.images)
        old_texts = [phrases(self._tasks[place % len(self._tasks)])[0] for place in range(turns)]
        images = np.concatenate([scenes.images for scenes in self._old.values()])
        states = np.concatenate([scenes.states for scenes in self._old.values()])
        owner = [task for task, scenes in self._old.items() for _ in scenes.images]
        others = {task: self._tasks[(place + 1) % len(self._tasks)] for place, task in enumerate(self._tasks)}
        said = {
            "old": [phrases(task)[0] for task in owner],
            "paraphrased": [HELD_OUT[task][place % len(HELD_OUT[task])] for place, task in enumerate(owner)],
            "wrong": [phrases(others[task])[0] for task in owner],
        }
        answers = {name: actor.chunks(images, states, texts, NOISE_SEED) for name, texts in said.items()}
        answers["swapped"] = actor.chunks(self._new.images, self._new.states, old_texts, NOISE_SEED)
        new_texts = [phrases(self._new_task)[0]] * turns
        answers["new"] = actor.chunks(self._new.images, self._new.states, new_texts, NOISE_SEED)
        return answers

    def _distance(self, one: Any, other: Any) -> float:  # noqa: ANN401 (arrays [frames, chunk, 4])
        difference = ((one - other) / self._unit)[:, :EXECUTED]
        return round(float(np.sqrt((difference**2).mean((1, 2))).mean()), 4)


def _spread(dataset: LeRobotDataset, root: Path, count: int, texts: tuple[str, ...] | None = None) -> Scenes:
    """Return so many frames, evenly spread over those whose instruction is one of `texts`."""
    columns = dataset.hf_dataset.remove_columns(dataset.meta.camera_keys).with_format("numpy")[:]
    known = list(dataset.meta.tasks.sort_values("task_index").index)
    rows = np.arange(len(columns["index"]))
    if texts is not None:
        rows = rows[[known[task] in texts for task in columns["task_index"]]]
    chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]
    images = np.load(frames_file(root), mmap_mode="r")[chosen]
    return Scenes(images, np.asarray(columns[STATE])[chosen].astype(np.float32))
