# SPDX-License-Identifier: Apache-2.0
"""What is retained: terms that return the retention loss for the next anchor batch.

A term is any callable without arguments that returns a scalar loss (`RetentionTerm`). How strongly it counts is none
of its business.
"""

from lerobot_craft.dual import Reference
from lerobot_craft.retention._combined import CombinedRetention
from lerobot_craft.retention._distance import EWC, L2SP, diagonal_fisher
from lerobot_craft.retention._factory import make_retention
from lerobot_craft.retention._hidden import Features, HiddenRetention
from lerobot_craft.retention._hidden_loss import HiddenLoss, hidden_loss
from lerobot_craft.retention._own_loss import ActionRetention, PolicyLoss, ReplayRetention
from lerobot_craft.retention._preprocess import Preprocess
from lerobot_craft.retention._protocol import PreparingTerm, ReferencedTerm, RetentionTerm, StatefulTerm
from lerobot_craft.retention._tokens import Logits, TokenRetention, token_cross_entropy, topk_divergence

__all__ = [
    "EWC",
    "L2SP",
    "ActionRetention",
    "CombinedRetention",
    "Features",
    "HiddenLoss",
    "HiddenRetention",
    "Logits",
    "PolicyLoss",
    "PreparingTerm",
    "Preprocess",
    "Reference",
    "ReferencedTerm",
    "ReplayRetention",
    "RetentionTerm",
    "StatefulTerm",
    "TokenRetention",
    "diagonal_fisher",
    "hidden_loss",
    "make_retention",
    "token_cross_entropy",
    "topk_divergence",
]
