# SPDX-License-Identifier: Apache-2.0
"""Two gradients in, one out: dot, cosine, projection and merge, in place and without host synchronisation.

Knows nothing of losses, multipliers or budgets: the weight of the retention gradient comes in as a number.
"""

from lerobot_craft.surgery._direct import backward_into_grad_
from lerobot_craft.surgery._merge import (
    MergeMode,
    Projection,
    Surgery,
    conflicts,
    merge_,
    retention_weight,
    weigh,
)
from lerobot_craft.surgery._products import GradientProducts, accumulation_dtype, gradient_products

__all__ = [
    "GradientProducts",
    "MergeMode",
    "Projection",
    "Surgery",
    "accumulation_dtype",
    "backward_into_grad_",
    "conflicts",
    "gradient_products",
    "merge_",
    "retention_weight",
    "weigh",
]
