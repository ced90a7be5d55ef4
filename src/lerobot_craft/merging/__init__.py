# SPDX-License-Identifier: Apache-2.0
"""A policy between a teacher and its student: their weights, interpolated. Trains nothing and needs no data.

WiSE-FT (Wortsman et al. 2022) and RETAIN are this. Importing it brings torch; `merging._settings` alone does not.
"""

from lerobot_craft.merging._merge import Merged, merge_checkpoints

__all__ = ["Merged", "merge_checkpoints"]
