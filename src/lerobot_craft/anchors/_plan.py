# SPDX-License-Identifier: Apache-2.0
"""What a cache is to hold and where it comes from, decided before the build. It reads and writes nothing."""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lerobot_craft.anchors._codec import IMAGE_FORMATS
from lerobot_craft.anchors._fingerprint import Json, canonical_json
from lerobot_craft.anchors._kinds import target_names
from lerobot_craft.errors import CraftError

TARGET_DTYPES = ("float16", "bfloat16", "float32")


def library_versions() -> dict[str, str]:
    """Return the versions of what shapes the bytes of a cache. Absent ones are left out."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "safetensors", "pillow", "lerobot"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """Everything that determines the bytes of a cache.

    Attributes:
        kinds: Some of `hidden`, `feature`, `action`, `tokens`, `replay`.
        frame_indices: For each anchor the index of its frame in the dataset; may repeat.
        teacher: Fingerprint of the teacher's weights and config.
        processor: Fingerprint of the teacher's preprocessor.
        policy_path: Where the teacher came from; for people and for the command in error messages.
        dataset: The dataset's id.
        revision: The dataset's revision.
        tap: Where the hidden states are taken, as the taps describe it.
        layers: Which layers were kept.
        pooling: How tokens became vectors; `tokens` when all are kept.
        dtype: Of hidden targets and logits. Actions keep their own.
        seed: Of the selection and of the teacher's noise.
        shard_size: Anchors per shard.
        batch_size: Anchors per forward of the teacher; rounding can depend on it, so a resumed build
            keeps it.
        image_format: `jpeg` or `png`.
        image_quality: Of JPEG.
        image_keys: Which frame keys are images; None follows LeRobot's names.
        prompts: For each anchor the instruction that replaces its `task`; None keeps the dataset's.
        extra: Anything else worth keeping, JSON-able.
        versions: Of the libraries; filled in by itself.
    """

    kinds: tuple[str, ...]
    frame_indices: tuple[int, ...]
    teacher: str = ""
    processor: str = ""
    policy_path: str | None = None
    dataset: str | None = None
    revision: str | None = None
    tap: str | None = None
    layers: tuple[int, ...] | None = None
    pooling: str | None = None
    dtype: str = "float16"
    seed: int = 42
    shard_size: int = 100
    batch_size: int = 16
    image_format: str = "jpeg"
    image_quality: int = 95
    image_keys: tuple[str, ...] | None = None
    prompts: tuple[str, ...] | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=library_versions)

    def __post_init__(self) -> None:
        """Check every setting and report all that is wrong at once."""
        target_names(self.kinds)
        wrong = []
        if not self.kinds:
            wrong.append("`kinds` got none, expected at least one")
        if not self.frame_indices:
            wrong.append("`frame_indices` got none, expected at least one")
        if self.dtype not in TARGET_DTYPES:
            wrong.append(f"`dtype` got {self.dtype!r}, expected one of {', '.join(TARGET_DTYPES)}")
        if self.image_format not in IMAGE_FORMATS:
            wrong.append(f"`image_format` got {self.image_format!r}, expected one of {', '.join(IMAGE_FORMATS)}")
        if not 1 <= self.image_quality <= 100:
            wrong.append(f"`image_quality` got {self.image_quality}, expected 1 to 100")
        wrong.extend(
            f"`{name}` got {value}, expected at least 1"
            for name, value in (("shard_size", self.shard_size), ("batch_size", self.batch_size))
            if value < 1
        )
        if self.prompts is not None and len(self.prompts) != len(self.frame_indices):
            wrong.append(f"`prompts` got {len(self.prompts)}, expected one per anchor ({len(self.frame_indices)})")
        if wrong:
            raise CraftError("; ".join(wrong) + ".")

    def __len__(self) -> int:
        return len(self.frame_indices)

    def to_json(self) -> dict[str, Json]:
        """Return the plan as JSON, tuples as lists."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CachePlan":
        """Read a plan that `to_json` wrote.

        Raises:
            CraftError: A key is unknown or missing, or a value is out of range.
        """
        known = {item.name for item in fields(cls)}
        if set(data) != known:
            raise CraftError(f"`plan` got the keys {sorted(data)}, expected {sorted(known)}.")
        for name in ("seed", "shard_size", "batch_size", "image_quality"):
            if type(data[name]) is not int:
                raise CraftError(f"`{name}` got {data[name]!r}, expected an integer.")
        indices = data["frame_indices"]
        if not isinstance(indices, list) or any(type(index) is not int for index in indices):
            raise CraftError("`frame_indices` got something else, expected a list of integers.")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**values)

    def differences(self, other: "CachePlan", *, versions: bool = True) -> list[str]:
        """Say, setting by setting, how `other` differs from this plan.

        Args:
            other: The other plan.
            versions: Whether other library versions count. They do for bytes, not for what is in them.
        """
        # Through JSON, where a tuple inside `extra` equals the list it is read back as.
        mine, theirs = (json.loads(canonical_json(plan.to_json())) for plan in (self, other))
        return [
            f"`{name}`: {_brief(mine[name])} there, {_brief(theirs[name])} here"
            for name in mine
            if mine[name] != theirs[name] and (versions or name != "versions")
        ]


def _plain(value: Any) -> Json:  # noqa: ANN401 - the fields of a plan are of many types
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _brief(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
