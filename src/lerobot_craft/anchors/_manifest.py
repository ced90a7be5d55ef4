# SPDX-License-Identifier: Apache-2.0
"""The manifest beside the shards: written once at the end, believed only once checked. No tensors here."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lerobot_craft.anchors._columns import DTYPES, ENCODINGS, Column
from lerobot_craft.anchors._fingerprint import Json, canonical_json
from lerobot_craft.anchors._kinds import kinds_in
from lerobot_craft.anchors._plan import CachePlan
from lerobot_craft.errors import CacheError, CraftError

FORMAT = "lerobot-craft-anchors"
SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard_{number:05d}.safetensors"


@dataclass(frozen=True)
class Shard:
    """One file of anchors: its name, how many it holds, its size and its SHA-256."""

    file: str
    count: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What the cache holds.

    Attributes:
        plan: What was asked for.
        columns: What each anchor has.
        shards: The files, in order.
        statistics: For each target its spread over the anchors, see `TargetStatistics`.
    """

    plan: CachePlan
    columns: tuple[Column, ...]
    shards: tuple[Shard, ...]
    statistics: Mapping[str, Mapping[str, Json]]

    @property
    def count(self) -> int:
        """How many anchors the shards hold."""
        return sum(shard.count for shard in self.shards)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds the columns make up."""
        return kinds_in(column.name for column in self.columns if column.role == "target")

    def to_text(self) -> str:
        """Return the manifest as canonical JSON: the same cache gives the same bytes."""
        return canonical_json(
            {
                "format": FORMAT,
                "schema_version": SCHEMA_VERSION,
                "count": self.count,
                "kinds": list(self.kinds),
                "plan": self.plan.to_json(),
                "columns": [column.to_json() for column in self.columns],
                "shards": [asdict(shard) for shard in self.shards],
                "statistics": {name: dict(values) for name, values in self.statistics.items()},
            }
        )

    @classmethod
    def from_text(cls, text: str, path: Path, *, partial: bool = False) -> "Manifest":
        """Read and check a manifest.

        Args:
            text: Its JSON.
            path: Where it was read, for messages.
            partial: Whether it may have fewer shards than its plan asks for, as during a build.

        Raises:
            CacheError: It is not JSON, not ours, from a newer schema, incomplete or inconsistent.
        """
        data = _parse(text, path)
        try:
            manifest = cls(
                plan=CachePlan.from_json(data["plan"]),
                columns=tuple(_column(item) for item in data["columns"]),
                shards=tuple(_shard(item) for item in data["shards"]),
                statistics=dict(data["statistics"]),
            )
        except (CraftError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CacheError(f"`{path}` is not a valid manifest ({error!r}). Build the cache again.") from error
        if not partial:
            manifest.check_counts(path, data.get("count"))
        return manifest

    def check_counts(self, path: Path, declared: object) -> None:
        """Check that plan, shards and the declared count agree.

        Raises:
            CacheError: They do not.
        """
        sizes = [shard.count for shard in self.shards]
        full = [min(self.plan.shard_size, len(self.plan) - first) for first in self.starts()]
        if declared != self.count or len(self.plan) != self.count or sizes != full:
            raise CacheError(
                f"`{path}` got count {declared}, {len(self.plan)} frame indices and shards of {sizes[:8]}, "
                f"expected one number of anchors in all three. Build the cache again with overwrite."
            )

    def starts(self) -> list[int]:
        """Return the index of the first anchor of each shard."""
        return [number * self.plan.shard_size for number in range(len(self.shards))]


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise CacheError(f"`{path}` is not JSON ({error}). Build the cache again.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CacheError(f"`{path}` is not the manifest of an anchor cache: expected `format` {FORMAT!r}.")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise CacheError(
            f"`{path}` got schema_version {data.get('schema_version')!r}, expected {SCHEMA_VERSION}. "
            f"Upgrade lerobot-craft to read it, or build the cache again with this release."
        )
    return data


def _typed(item: Mapping[str, Any], kinds: Mapping[str, type]) -> Mapping[str, Any]:
    if set(item) != set(kinds) or any(type(item[name]) is not kind for name, kind in kinds.items()):
        raise TypeError(f"got {item}, expected {[f'{name}: {kind.__name__}' for name, kind in kinds.items()]}")
    return item


def _column(item: Mapping[str, Any]) -> Column:
    _typed(item, {"name": str, "role": str, "encoding": str, "dtype": str, "shape": list})
    column = Column(**{**item, "shape": tuple(item["shape"])})
    shape_is_sound = all(type(size) is int and size >= 0 for size in item["shape"])
    if column.role not in ("frame", "target") or column.encoding not in ENCODINGS:
        raise ValueError(f"column {column.name!r} got role {column.role!r} and encoding {column.encoding!r}")
    if column.dtype not in DTYPES or not shape_is_sound:
        raise ValueError(f"column {column.name!r} got dtype {column.dtype!r} and shape {column.shape}")
    if column.encoding in ("jpeg", "png") and len(column.shape) not in (3, 4):
        raise ValueError(f"column {column.name!r} got an image of shape {column.shape}")
    return column


def _shard(item: Mapping[str, Any]) -> Shard:
    shard = Shard(**_typed(item, {"file": str, "count": int, "bytes": int, "sha256": str}))
    if not _SHA256.fullmatch(shard.sha256):
        raise ValueError(f"shard {shard.file!r} got sha256 {shard.sha256!r}")
    return shard


def inside(root: Path, name: str) -> Path:
    """Return the path of a file named in a manifest, which must lie directly in the cache's folder.

    Raises:
        CacheError: The name leaves the folder, directly or through a symbolic link.
    """
    plain = name not in ("", ".", "..") and not set(name) & set("/\\\0")
    # resolve() follows links, so a link that points out of the folder is seen as what it points to.
    path = (root / name).resolve() if plain else root
    if not plain or path.parent != root.resolve() or path.name != name:
        raise CacheError(
            f"the manifest in `{root}` got the file {name!r}, expected a file in that folder "
            f"(no other folder, no symbolic link). Do not use this cache."
        )
    return path
