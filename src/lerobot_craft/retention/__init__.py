# SPDX-License-Identifier: Apache-2.0
"""What is retained: terms that return the retention loss for the next anchor batch.

A term is any callable without arguments that returns a scalar loss (`RetentionTerm`). How strongly it counts is none
of its business.
"""

from lerobot_craft.retention._distance import EWC, L2SP, diagonal_fisher
from lerobot_craft.retention._protocol import ReferencedTerm, RetentionTerm, StatefulTerm

__all__ = ["EWC", "L2SP", "ReferencedTerm", "RetentionTerm", "StatefulTerm", "diagonal_fisher"]
