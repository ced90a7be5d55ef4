# SPDX-License-Identifier: Apache-2.0
"""How far a policy has moved from its teacher, measured on recorded frames; needs no simulator and trains nothing.

Importing it brings LeRobot, which takes many seconds; `drift._settings` alone does not need it.
"""

from lerobot_craft.drift._actions import DriftResult, action_drift
from lerobot_craft.drift._frames import Frames, choose_frames
from lerobot_craft.drift._intervals import Interval

__all__ = ["DriftResult", "Frames", "Interval", "action_drift", "choose_frames"]
