# SPDX-License-Identifier: Apache-2.0
"""Two gradients in, one out: dot, cosine, projection and merge, in place; only `add_` waits for the device.

Knows nothing of losses, multipliers or budgets: the weight of the retention gradient comes in as a number.
"""

from lerobot_craft.surgery._add import add_
from lerobot_craft.surgery._merge import (
    MergeMode,
    Projection,
    Surgery,
    conflicts,
    merge_,
    retention_weight,
    weigh,
)
from lerobot_craft.surgery._products import Gradient, GradientProducts, accumulation_dtype, gradient_products

__all__ = [
    "Gradient",
    "GradientProducts",
    "MergeMode",
    "Projection",
    "Surgery",
    "accumulation_dtype",
    "add_",
    "conflicts",
    "gradient_products",
    "merge_",
    "retention_weight",
    "weigh",
]
