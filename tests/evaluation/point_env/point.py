# SPDX-License-Identifier: Apache-2.0
"""An environment type of somebody's own, as LeRobot plugins register theirs: two tasks, cameras, no physics.

An episode of task N succeeds at its third step where its seed leaves N when divided by 3; so outcomes show which seeds
were used.
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig

from lerobot_craft.testing._dataset import ACTION_DIM, IMAGE_SIZE, STATE_DIM

PICTURE = gym.spaces.Box(0, 255, (IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)


class PointEnv(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own form)
    _max_episode_steps = 5
    task_description = "push the red block"
    observation_space = gym.spaces.Dict(
        {
            "pixels": gym.spaces.Dict({"above": PICTURE, "wrist": PICTURE}),
            "agent_pos": gym.spaces.Box(-1, 1, (STATE_DIM,), np.float32),
        }
    )
    action_space = gym.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)

    def __init__(self, task: int) -> None:
        self.task = str(task)
        self.count = self.start = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.start, self.count = seed or 0, 0
        return self.seen(), {"is_success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        success = self.count == 3 and self.start % 3 == int(self.task)
        return self.seen(), float(success), success, False, {"is_success": success}

    def seen(self) -> dict[str, Any]:
        picture = np.zeros(PICTURE.shape, np.uint8)
        return {"pixels": {"above": picture, "wrist": picture}, "agent_pos": np.zeros(STATE_DIM, np.float32)}

    def render(self) -> Any:
        return np.full((32, 32, 3), 40 * self.count, np.uint8)


@EnvConfig.register_subclass("point")
@dataclass
class PointConfig(EnvConfig):
    fps: int = 10
    features: dict[str, PolicyFeature] = field(
        default_factory=lambda: {"action": PolicyFeature(type=FeatureType.ACTION, shape=(ACTION_DIM,))}
    )
    features_map: dict[str, str] = field(default_factory=lambda: {"action": "action"})

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        return {}

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
        def of(task: int) -> Any:
            return gym.vector.SyncVectorEnv([lambda: PointEnv(task)] * n_envs)

        return {"points": {0: of(0), 1: of(1)}}
