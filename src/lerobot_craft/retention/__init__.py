# SPDX-License-Identifier: Apache-2.0
"""What is retained: each term gives the retention loss for the next batch of anchors. No policies here."""

from lerobot_craft.retention._combined import CombinedRetention, ReferencedTerm
from lerobot_craft.retention._factory import make_retention
from lerobot_craft.retention._hidden import Features, HiddenRetention
from lerobot_craft.retention._hidden_loss import HiddenLoss, hidden_loss
from lerobot_craft.retention._own_loss import ActionRetention, PolicyLoss, ReplayRetention
from lerobot_craft.retention._preprocess import Preprocess
from lerobot_craft.retention._reference import Reference
from lerobot_craft.retention._tokens import Logits, TokenRetention, token_cross_entropy, topk_divergence

__all__ = [
    "ActionRetention",
    "CombinedRetention",
    "Features",
    "HiddenLoss",
    "HiddenRetention",
    "Logits",
    "PolicyLoss",
    "Preprocess",
    "Reference",
    "ReferencedTerm",
    "ReplayRetention",
    "TokenRetention",
    "hidden_loss",
    "make_retention",
    "token_cross_entropy",
    "topk_divergence",
]
