# SPDX-License-Identifier: Apache-2.0
"""From a LeRobot checkpoint and a dataset to an anchor cache; what a cache is on disk is `anchors`' business.

Only the settings are imported here: `_run` and `_teacher` bring LeRobot, which takes many seconds.
"""

from lerobot_craft.caching._settings import CacheSettings

__all__ = ["CacheSettings"]
