# SPDX-License-Identifier: Apache-2.0
"""Whether a cache belongs to the policy that is trained. It compares records and loads no weights."""

import shlex
from collections.abc import Sequence

from lerobot_craft.anchors._kinds import MODE_KINDS
from lerobot_craft.anchors._legacy import LegacyCache
from lerobot_craft.anchors._reader import AnchorCache
from lerobot_craft.errors import CacheMismatchError, CraftError


def check_mode(mode: str) -> str:
    """Return a retention mode that reads anchors, or say which there are.

    Raises:
        CraftError: There is no such mode.
    """
    if mode not in MODE_KINDS:
        raise CraftError(f"`retention_mode` got {mode!r}, expected one of {', '.join(MODE_KINDS)}.")
    return mode


def check_compatible(
    cache: AnchorCache | LegacyCache,
    *,
    mode: str | None = None,
    teacher: str | None = None,
    processor: str | None = None,
    tap: str | None = None,
    layers: Sequence[int] | None = None,
    pooling: str | None = None,
    policy_path: str | None = None,
) -> tuple[str, ...]:
    """Compare a cache with what the run expects and report every mismatch at once.

    Args:
        cache: The cache.
        mode: The retention mode; None does not check.
        teacher: The fingerprint of the policy as it is before training; None does not check.
        processor: The fingerprint of its preprocessor; None does not check.
        tap: Where the student's hidden states are taken; None does not check.
        layers: Which layers; None does not check.
        pooling: How they are pooled; None does not check.
        policy_path: Where the policy came from, for the command in the message.

    Returns:
        The names of what was to be checked and the cache does not say, as older formats do not.

    Raises:
        CacheMismatchError: Something differs: what was got, what was expected, and the command that builds
            the right cache.
    """
    expected: dict[str, object] = {
        "teacher": teacher,
        "processor": processor,
        "tap": tap,
        "layers": None if layers is None else tuple(layers),
        "pooling": pooling,
    }
    problems: list[str] = []
    if mode is not None and not set(MODE_KINDS[check_mode(mode)]) & set(cache.kinds):
        wanted = " or ".join(MODE_KINDS[mode])
        problems.append(
            f"`retention_mode` got {mode!r} and a cache of {', '.join(cache.kinds)}, expected one of {wanted}"
        )
    recorded = _recorded(cache)
    asked = {name: value for name, value in expected.items() if value is not None}
    problems += [
        f"`{name}` got {recorded[name]} in the cache, expected {value}"
        for name, value in asked.items()
        if recorded[name] and recorded[name] != value
    ]
    if problems:
        command = build_command(cache, mode=mode, tap=tap, layers=layers, pooling=pooling, policy_path=policy_path)
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise CacheMismatchError(
            f"the anchor cache in `{cache.directory}` is not for this run:\n{listed}\nBuild the right one:\n  {command}"
        )
    return tuple(name for name in asked if not recorded[name])


def build_command(
    cache: AnchorCache | LegacyCache,
    *,
    mode: str | None,
    tap: str | None,
    layers: Sequence[int] | None,
    pooling: str | None,
    policy_path: str | None,
) -> str:
    """Return the command that builds the cache this run needs, with what is known filled in."""
    plan = cache.manifest.plan if isinstance(cache, AnchorCache) else None
    kinds = MODE_KINDS[mode][:1] if mode is not None else cache.kinds
    flags = {
        "--policy.path": policy_path or (plan.policy_path if plan else None) or "POLICY",
        "--dataset.repo_id": (plan.dataset if plan else None) or "DATASET",
        "--output_dir": f"{cache.directory}-{'-'.join(kinds)}" if mode is not None else f"{cache.directory}-new",
        "--kinds": ",".join(kinds),
        "--tap": tap,
        "--layers_to_save": None if layers is None else ",".join(map(str, layers)),
        "--pooling": pooling,
        "--num_anchors": str(len(cache)),
    }
    given = [f"{flag}={shlex.quote(value)}" for flag, value in flags.items() if value is not None]
    return " ".join(["lerobot-craft cache", *given])


def _recorded(cache: AnchorCache | LegacyCache) -> dict[str, object]:
    if isinstance(cache, LegacyCache):
        return dict.fromkeys(("teacher", "processor", "tap", "layers", "pooling"))
    plan = cache.manifest.plan
    return {
        "teacher": plan.teacher,
        "processor": plan.processor,
        "tap": plan.tap,
        "layers": plan.layers,
        "pooling": plan.pooling,
    }
