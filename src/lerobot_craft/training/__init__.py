# SPDX-License-Identifier: Apache-2.0
"""LeRobot's training with a budget for forgetting: settings, loop, checkpoints and the normalisation guard.

Holds no part of the method itself, which is `lerobot_craft.constraint` and works in any loop.
"""

from lerobot_craft.training._config import CraftConfig, CraftTrainConfig, Normalization, RetentionMode, print_config
from lerobot_craft.training._normalization import FeatureRow, guard
from lerobot_craft.training._parse import parse
from lerobot_craft.training._run import train

__all__ = [
    "CraftConfig",
    "CraftTrainConfig",
    "FeatureRow",
    "Normalization",
    "RetentionMode",
    "guard",
    "parse",
    "print_config",
    "train",
]
