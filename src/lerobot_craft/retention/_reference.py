# SPDX-License-Identifier: Apache-2.0
"""The unit of a retention loss: what the teacher scores, and what a policy that looks at nothing does."""

from typing import NamedTuple


class Reference(NamedTuple):
    """Turns a retention loss into relative drift: (loss − floor) / scale.

    Attributes:
        floor: The teacher's own loss; drift 0.
        scale: How much more a policy loses that ignores the observation; drift 1.
    """

    floor: float
    scale: float
