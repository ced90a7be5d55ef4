# SPDX-License-Identifier: Apache-2.0
"""Rollouts of a LeRobot checkpoint, with its own processors, in Meta-World; trains nothing and writes no file."""

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lerobot_craft.caching._teacher import Teacher, load_teacher
from lerobot_craft.evaluation._dataset import INSTRUCTION, STATE
from lerobot_craft.evaluation._success import TaskSuccess
from lerobot_craft.evaluation._tasks import Simulator, Vector, instruction, instruction_vector
from lerobot_craft.evaluation._workers import spread

# So many episodes run side by side, so that the policy is asked for all of them at once.
SIDE_BY_SIDE = 10

type OnEpisodes = Callable[[int], None]


class Rollouts:
    """Episodes of any number of checkpoints on paired seeds; keeps its simulators between checkpoints.

    Args:
        seeds: Where each episode starts; the same for every task and every checkpoint.
        workers: Processes to spread the tasks over; as many as there are cores where None.
    """

    def __init__(self, seeds: Sequence[int], workers: int | None = None) -> None:
        self._seeds = tuple(seeds)
        self._workers = workers
        self._simulators: dict[str, list[Simulator]] = {}

    def success(self, checkpoint: Path, longest: Mapping[str, int], on_episodes: OnEpisodes) -> list[TaskSuccess]:
        """Return a checkpoint's success, task by task.

        An episode succeeds when Meta-World says so at any of its steps.

        Args:
            checkpoint: Folder of the policy and its processors.
            longest: For each task, the steps after which an episode has failed.
            on_episodes: Told the number of episodes just finished.
        """
        # LeRobot prints where it loads from, in the middle of our progress.
        with contextlib.redirect_stdout(io.StringIO()):
            policy = load_teacher(str(checkpoint), "cpu")
        for task in longest:
            # Made here, so that the workers of the next checkpoint have them too.
            self._simulators_of(task, min(SIDE_BY_SIDE, len(self._seeds)))
        found = []
        for success in spread(lambda task: self._on_task(policy, task, longest[task]), list(longest), self._workers):
            found.append(success)
            on_episodes(len(self._seeds))
        return found

    def _on_task(self, policy: Teacher, task: str, longest: int) -> TaskSuccess:
        outcomes: list[bool] = []
        for first in range(0, len(self._seeds), SIDE_BY_SIDE):
            seeds = self._seeds[first : first + SIDE_BY_SIDE]
            outcomes += _together(policy, self._simulators_of(task, len(seeds)), seeds, longest)
        return TaskSuccess(task, tuple(outcomes))

    def _simulators_of(self, task: str, count: int) -> list[Simulator]:
        made = self._simulators.setdefault(task, [])
        made.extend(Simulator(task) for _ in range(count - len(made)))
        return made[:count]


def _together(policy: Teacher, simulators: list[Simulator], seeds: Sequence[int], longest: int) -> list[bool]:
    policy.policy.reset()
    observations = [simulator.reset(seed) for simulator, seed in zip(simulators, seeds, strict=True)]
    succeeded = [False] * len(simulators)
    text = instruction(simulators[0].task)
    for _ in range(longest):
        actions = _act(policy, observations, text)
        for index, simulator in enumerate(simulators):
            # A finished episode stands still, so that the batch keeps its shape.
            if not succeeded[index]:
                observations[index], succeeded[index] = simulator.step(actions[index])
        if all(succeeded):
            break
    return succeeded


def _act(policy: Teacher, observations: list[Vector], text: str) -> Any:  # noqa: ANN401 (an array of actions)
    count = len(observations)
    batch: dict[str, Any] = {
        STATE: torch.from_numpy(np.stack(observations)),
        INSTRUCTION: torch.from_numpy(instruction_vector(text)).repeat(count, 1),
        "task": [text] * count,
    }
    with torch.inference_mode():
        action: Tensor = policy.postprocess(policy.policy.select_action(policy.preprocess(batch)))
    return action.numpy()
