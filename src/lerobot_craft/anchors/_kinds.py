# SPDX-License-Identifier: Apache-2.0
"""What an anchor can hold of its teacher, and which retention mode reads which. It touches no data."""

from collections.abc import Iterable

from lerobot_craft.errors import CraftError

REQUIRED_TARGET: dict[str, str] = {
    "hidden": "teacher_hidden",
    "feature": "target_features",
    "action": "teacher_action",
    "tokens": "labels",
    "replay": "action",
}
"""The one target that makes a cache hold a kind."""

OPTIONAL_TARGETS: dict[str, tuple[str, ...]] = {
    "hidden": ("teacher_hidden_mask",),
    "feature": (),
    "action": (),
    "tokens": ("labels_mask", "topk_values", "topk_indices"),
    "replay": ("action_is_pad",),
}

MODE_KINDS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden", "feature"),
    "action": ("action",),
    "token_ce": ("tokens",),
    "replay": ("replay",),
}
"""For each retention mode the kinds it can read, the preferred one first."""

ROUNDED_TARGETS = frozenset({"teacher_hidden", "target_features", "topk_values"})
"""Targets stored in the cache's dtype. Actions are not among them: they are small, and in float16 a joint at
180 degrees would move in steps of 0.125."""


def target_names(kinds: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of targets these kinds need, and of those they may have.

    Raises:
        CraftError: A kind is unknown.
    """
    chosen = tuple(kinds)
    for kind in chosen:
        if kind not in REQUIRED_TARGET:
            raise CraftError(f"`kinds` got {kind!r}, expected some of {', '.join(REQUIRED_TARGET)}.")
    required = frozenset(REQUIRED_TARGET[kind] for kind in chosen)
    return required, frozenset(name for kind in chosen for name in OPTIONAL_TARGETS[kind])


def kinds_in(names: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds that targets with these names make up, in a fixed order."""
    present = frozenset(names)
    return tuple(kind for kind, name in REQUIRED_TARGET.items() if name in present)
