# SPDX-License-Identifier: Apache-2.0
"""Demonstrations of a Meta-World task by its scripted expert under noise; writes no file."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lerobot_craft.errors import RunError
from lerobot_craft.evaluation._tasks import ACTION_SIZE, LONGEST_EPISODE, Expert, Simulator, Vector

# Demonstrations and evaluations never start from the same state: their seeds are far apart.
FIRST_SEED = 1_000_000_000
SEEDS_PER_RUN = 10_000

# Standard deviation of the noise on the expert's action, of which the limits are ±1.
NOISE = 0.1
# An expert that fails this often in a row cannot do the task.
MOST_FAILURES = 20


@dataclass(frozen=True)
class Demonstration:
    """One successful episode.

    Attributes:
        task: Name of the task.
        states: Observations [steps, 39].
        actions: What the expert would do at each of them [steps, 4].
    """

    task: str
    states: Vector
    actions: Vector


def demonstrate(task: str, count: int, seed: int, *, noise: float = NOISE) -> Iterator[Demonstration]:
    """Yield successful episodes of the expert.

    What is executed is the expert's action plus noise, what is recorded is the expert's action: so the data shows how
    to come back from places that the expert alone never visits (DART, Laskey et al. 2017).

    Args:
        task: Name of the task.
        count: How many episodes.
        seed: Of the run; the same one gives the same episodes.
        noise: Standard deviation of the noise.

    Raises:
        RunError: If the expert fails too often in a row.
    """
    simulator, expert = Simulator(task), Expert(task)
    done, failures, number = 0, 0, FIRST_SEED + SEEDS_PER_RUN * seed
    while done < count:
        episode = _episode(simulator, expert, number, noise)
        number += 1
        if episode is not None:
            done, failures = done + 1, 0
            yield episode
            continue
        failures += 1
        if failures == MOST_FAILURES:
            raise RunError(
                f"The scripted expert of `{task}` failed {failures} times in a row within {LONGEST_EPISODE} steps: "
                "choose another task."
            )


def _episode(simulator: Simulator, expert: Expert, seed: int, noise: float) -> Demonstration | None:
    rng = np.random.default_rng(seed)
    states, actions = [], []
    observation = simulator.reset(seed)
    for _ in range(LONGEST_EPISODE):
        action = expert.action(observation)
        states.append(observation)
        actions.append(action)
        executed = action + noise * rng.standard_normal(ACTION_SIZE)
        observation, success = simulator.step(executed)
        if success:
            return Demonstration(simulator.task, np.stack(states), np.stack(actions))
    return None
