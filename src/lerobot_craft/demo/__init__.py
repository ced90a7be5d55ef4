# SPDX-License-Identifier: Apache-2.0
"""The whole of the package on Meta-World in minutes; what a stage does is done by the commands people type.

Only the settings are imported here: `_run` and `_stages` bring LeRobot, which takes many seconds.
"""

from lerobot_craft.demo._settings import DemoSettings

__all__ = ["DemoSettings"]
