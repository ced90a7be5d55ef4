# SPDX-License-Identifier: Apache-2.0
"""Tiny real checkpoints of six LeRobot policy types, for tests and dry runs. Nothing here is for a robot.

Importing this package registers the small variants, so that LeRobot can load a checkpoint that names them:

    lerobot-train --discover_packages_path=lerobot_craft.testing --policy.path=DIR/policy ...
"""

from lerobot_craft.testing import _resnet, configuration_pi_tiny, processor_pi_tiny
from lerobot_craft.testing._dataset import REPO_ID
from lerobot_craft.testing._make import TINY_TYPES, TinyPaths, add_noise_, load_frames, make_tiny, select

_resnet.register()

__all__ = [
    "REPO_ID",
    "TINY_TYPES",
    "TinyPaths",
    "add_noise_",
    "configuration_pi_tiny",
    "load_frames",
    "make_tiny",
    "processor_pi_tiny",
    "select",
]
