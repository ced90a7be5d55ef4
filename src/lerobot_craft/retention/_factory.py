# SPDX-License-Identifier: Apache-2.0
"""From a retention mode's name to its term. Parameter distances, which need no anchors, are not made here."""

from typing import Any

from lerobot_craft.anchors import (
    AnchorBatches,
    AnchorCache,
    LegacyCache,
    check_compatible,
    check_mode,
)
from lerobot_craft.errors import CraftError
from lerobot_craft.retention._hidden import Features, HiddenRetention
from lerobot_craft.retention._own_loss import ActionRetention, PolicyLoss, ReplayRetention
from lerobot_craft.retention._tokens import Logits, TokenRetention


def make_retention(
    mode: str,
    batches: AnchorBatches,
    *,
    features: Features | None = None,
    policy_loss: PolicyLoss | None = None,
    logits: Logits | None = None,
    **settings: Any,  # noqa: ANN401 - each term checks its own
) -> HiddenRetention | ActionRetention | ReplayRetention | TokenRetention:
    """Make the term of a retention mode. The mode is never guessed from the cache.

    Args:
        mode: `hidden`, `action`, `token_ce` or `replay`.
        batches: Anchors, of a cache that holds what the mode reads.
        features: For `hidden`: the student's features.
        policy_loss: For `action`, `replay` and `token_ce`: the student's own loss.
        logits: For `token_ce` instead of `policy_loss`: the student's logits.
        settings: Passed on to the term.

    Raises:
        CacheMismatchError: The cache holds another kind; the message has the command that builds the right
            one.
        CraftError: The mode is unknown, or what it needs was not given.
    """
    check_mode(mode)
    if isinstance(batches.source, AnchorCache | LegacyCache):
        check_compatible(batches.source, mode=mode)
    if mode == "hidden":
        if features is None:
            raise CraftError("`features` got None, expected the student's features for `retention_mode=hidden`.")
        return HiddenRetention(features, batches, **settings)
    if mode == "token_ce":
        return TokenRetention(policy_loss, batches, logits=logits, **settings)
    if policy_loss is None:
        raise CraftError(f"`policy_loss` got None, expected the student's loss for `retention_mode={mode}`.")
    own_loss = ActionRetention if mode == "action" else ReplayRetention
    return own_loss(policy_loss, batches, **settings)
