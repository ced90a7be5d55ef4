# SPDX-License-Identifier: Apache-2.0
"""Meta-World tasks by name: the simulator of one, its expert, its instruction; never renders and trains nothing."""

import difflib
import functools
import hashlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lerobot_craft.errors import UsageError

STATE_SIZE = 39
ACTION_SIZE = 4
INSTRUCTION_SIZE = 32
FPS = 80  # the simulator's own: a step is 5 frames of 2.5 ms
LONGEST_EPISODE = 500

_VERSION = "-v3"

type Vector = npt.NDArray[np.float32]


@functools.cache
def task_names() -> tuple[str, ...]:
    """Return the names of all tasks, without Meta-World's version at the end.

    Raises:
        UsageError: If Meta-World is not installed.
    """
    return tuple(sorted(name.removesuffix(_VERSION) for name in _environments()))


def check_tasks(flag: str, names: Sequence[str]) -> None:
    """Refuse names that are no task.

    Args:
        flag: Where the names were given, for the message.
        names: The names.

    Raises:
        UsageError: With the nearest names for each that is unknown.
    """
    problems = []
    for name in names:
        if name not in task_names():
            near = difflib.get_close_matches(name, task_names(), n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(task_names())}."
            problems.append(f"`--{flag}` names `{name}`, which is no Meta-World task: {hint}")
    if problems:
        raise UsageError("\n".join(problems))


def instruction(task: str) -> str:
    """Return the instruction of a task as text.

    >>> instruction("drawer-open")
    'drawer open'
    """
    return task.replace("-", " ")


def instruction_vector(text: str) -> Vector:
    """Return an instruction as a fixed vector of ±1, for policies that read no text.

    Each text has its own vector whatever tasks there are besides, so that a new task needs no wider input.

    >>> instruction_vector("push").shape, bool((instruction_vector("push") == instruction_vector("pull")).all())
    ((32,), False)
    """
    digest = hashlib.sha256(text.encode()).digest()[: INSTRUCTION_SIZE // 8]
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))
    return (2.0 * bits - 1.0).astype(np.float32)


class Simulator:
    """One task's simulator, started from a seed.

    Args:
        task: Name of the task.
    """

    def __init__(self, task: str) -> None:
        check_tasks("tasks", [task])
        self.task = task
        env = _environments()[task + _VERSION]()
        env._freeze_rand_vec = False  # objects and goal are drawn at each reset ...
        env.seeded_rand_vec = True  # ... from the generator that `seed` sets
        env._partially_observable = False
        # Observations are clipped to this space, which was computed with a hidden goal: it is computed again.
        vars(env).pop("sawyer_observation_space", None)
        env._set_task_called = True
        self._env = env

    def reset(self, seed: int) -> Vector:
        """Start the episode that belongs to `seed`; return its first observation."""
        self._env.seed(seed)
        observation, _ = self._env.reset()
        return np.asarray(observation, dtype=np.float32)

    def step(self, action: npt.NDArray[Any]) -> tuple[Vector, bool]:
        """Do one step; return the observation and whether the task is done."""
        observation, _, _, _, info = self._env.step(np.clip(action, -1.0, 1.0))
        return np.asarray(observation, dtype=np.float32), bool(info["success"])


class Expert:
    """Meta-World's scripted expert of one task.

    Args:
        task: Name of the task.
    """

    def __init__(self, task: str) -> None:
        check_tasks("tasks", [task])
        from metaworld.policies import ENV_POLICY_MAP

        experts: dict[str, Any] = dict(ENV_POLICY_MAP)
        self._policy = experts[task + _VERSION]()

    def action(self, observation: Vector) -> Vector:
        """Return what the expert does, within the robot's limits."""
        with warnings.catch_warnings():
            # The scripts ask for more than the robot's limits on purpose.
            warnings.filterwarnings("ignore", message="Constant")
            action = self._policy.get_action(observation.astype(np.float64))
        return np.clip(np.asarray(action), -1.0, 1.0).astype(np.float32)


@functools.cache
def _environments() -> dict[str, Any]:
    try:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    except ModuleNotFoundError as error:
        raise UsageError(
            f"Meta-World is not installed ({error}): `pip install 'lerobot-craft[metaworld]'`, or `make setup`."
        ) from error
    return dict(ALL_V3_ENVIRONMENTS)
