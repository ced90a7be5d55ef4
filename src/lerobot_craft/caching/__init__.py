# SPDX-License-Identifier: Apache-2.0
"""From a LeRobot checkpoint and a dataset to an anchor cache; what a cache is on disk is `anchors`' business."""

from lerobot_craft.caching._inspect import contact_sheet, describe
from lerobot_craft.caching._run import build
from lerobot_craft.caching._settings import CacheSettings
from lerobot_craft.caching._teacher import Teacher, load_teacher

__all__ = ["CacheSettings", "Teacher", "build", "contact_sheet", "describe", "load_teacher"]
