# SPDX-License-Identifier: Apache-2.0
"""LeRobot's environment type `metaworld_state`: Meta-World states and the instruction's vector; sees no images.

`lerobot-craft eval` knows it. LeRobot's own commands do with `--env.discover_packages_path=lerobot_craft.evaluation`.
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.envs.utils import FreezeAfterEpisodeEnd

from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation._dataset import INSTRUCTION, STATE
from lerobot_craft.evaluation._drawing import draw_state
from lerobot_craft.evaluation._tasks import (
    ACTION_SIZE,
    FPS,
    INSTRUCTION_SIZE,
    LONGEST_EPISODE,
    STATE_SIZE,
    Simulator,
    Vector,
    check_tasks,
    instruction,
    instruction_vector,
)

type Observation = dict[str, Vector]


class MetaWorldStateEnv(gym.Env[Observation, npt.NDArray[np.float32]]):
    """One task as a Gymnasium environment; its simulator is made at the first reset.

    Args:
        task: Name of the task.
        episode_length: Steps after which an episode has failed.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": FPS}  # noqa: RUF012 (Gymnasium's own form)
    render_mode = "rgb_array"
    observation_space: gym.spaces.Space[Any] = gym.spaces.Dict(
        {
            "agent_pos": gym.spaces.Box(-np.inf, np.inf, (STATE_SIZE,), np.float32),
            "environment_state": gym.spaces.Box(-1.0, 1.0, (INSTRUCTION_SIZE,), np.float32),
        }
    )
    action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)

    def __init__(self, task: str, episode_length: int) -> None:
        self.task = task
        self.task_description = instruction(task)
        # The name under which LeRobot's rollout asks for it.
        self._max_episode_steps = episode_length
        self._vector = instruction_vector(self.task_description)
        self._simulator: Simulator | None = None
        self._state: Vector = np.zeros(STATE_SIZE, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the episode that belongs to `seed`; without one, the next of the environment's own generator."""
        super().reset(seed=seed)
        if self._simulator is None:
            self._simulator = Simulator(self.task)
        start = int(self.np_random.integers(2**31)) if seed is None else seed
        self._state = self._simulator.reset(start)
        return self._observation(), {"is_success": False}

    def step(self, action: npt.NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Do one step; the episode ends with success, and LeRobot's rollout ends it after `episode_length`."""
        if self._simulator is None:
            raise RuntimeError("`step` was called before `reset`.")
        self._state, success = self._simulator.step(action)
        return self._observation(), float(success), success, False, {"is_success": success}

    def render(self) -> npt.NDArray[np.uint8]:
        """Return the state as a drawing."""
        return draw_state(self._state)

    def _observation(self) -> Observation:
        return {"agent_pos": self._state, "environment_state": self._vector}


def _features() -> dict[str, PolicyFeature]:
    return {
        "action": PolicyFeature(type=FeatureType.ACTION, shape=(ACTION_SIZE,)),
        "agent_pos": PolicyFeature(type=FeatureType.STATE, shape=(STATE_SIZE,)),
        "environment_state": PolicyFeature(type=FeatureType.ENV, shape=(INSTRUCTION_SIZE,)),
    }


@EnvConfig.register_subclass("metaworld_state")
@dataclass
class MetaWorldStateConfig(EnvConfig):  # type: ignore[misc] # LeRobot is not typed
    """Settings of the environment, as LeRobot's command line reads them.

    Attributes:
        task: One or more of Meta-World's tasks, with commas between them.
        episode_length: Steps after which an episode has failed.
    """

    task: str | None = "push"
    fps: int = FPS
    episode_length: int = 200
    features: dict[str, PolicyFeature] = field(default_factory=_features)
    features_map: dict[str, str] = field(
        default_factory=lambda: {"action": "action", "agent_pos": STATE, "environment_state": INSTRUCTION}
    )

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """What each environment is made with."""
        return {"episode_length": self.episode_length}

    def create_envs(
        self, n_envs: int, use_async_envs: bool = False
    ) -> dict[str, dict[int, gym.vector.VectorEnv[Any, Any, Any]]]:
        """Return the environments of each task.

        They share one process whatever `use_async_envs` says: a step takes less time than handing it over.

        Raises:
            UsageError: If a name is no task, or the length is not one.
        """
        tasks = [part.strip() for part in (self.task or "").split(",") if part.strip()]
        if not tasks:
            raise UsageError("`--env.task` names no task: expected one or more, as in `--env.task=push,hammer`.")
        check_tasks("env.task", tasks)
        if not 1 <= self.episode_length <= LONGEST_EPISODE:
            raise UsageError(
                f"`--env.episode_length={self.episode_length}`: expected 1 to {LONGEST_EPISODE}, where Meta-World "
                "stops."
            )
        return {task: {0: self._together(task, n_envs)} for task in tasks}

    def _together(self, task: str, count: int) -> gym.vector.VectorEnv[Any, Any, Any]:
        def one() -> gym.Env[Any, Any]:
            # An episode that has ended stands still until LeRobot starts the next.
            frozen: gym.Env[Any, Any] = FreezeAfterEpisodeEnd(MetaWorldStateEnv(task, **self.gym_kwargs))
            return frozen

        return gym.vector.SyncVectorEnv([one for _ in range(count)])
