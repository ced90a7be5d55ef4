# SPDX-License-Identifier: Apache-2.0
"""The multiplier λ and the budget ε: how strongly to retain, and how much drift is allowed.

Knows nothing of gradients or models.
"""

from lerobot_craft.dual._budget import Budget, EpsilonSchedule, EpsilonUnits, Reference
from lerobot_craft.dual._multiplier import LambdaController, Multiplier

__all__ = ["Budget", "EpsilonSchedule", "EpsilonUnits", "LambdaController", "Multiplier", "Reference"]
