# SPDX-License-Identifier: Apache-2.0
"""All known methods on the same problems: what is compared, in which order it is computed, and the table.

Importing this brings neither torch nor LeRobot; `_work` and `_run` do.
"""

from lerobot_craft.comparison._methods import METHODS, Method
from lerobot_craft.comparison._settings import CompareSettings, Problem

__all__ = ["METHODS", "CompareSettings", "Method", "Problem"]
