# SPDX-License-Identifier: Apache-2.0
"""Caches of older tools: `metadata.json` beside `shard_0000.pt`, … Read and converted, never written.

Their inputs (`pixel_values`, `input_ids`, `attention_mask`) are already preprocessed. What they hold is read
off the tensors; their metadata went by several names for one thing and is kept as a note only.
"""

import json
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lerobot_craft.anchors._kinds import kinds_in
from lerobot_craft.anchors._manifest import inside
from lerobot_craft.anchors._reader import (
    AnchorBatch,
    AnchorCache,
    Split,
    checked_indices,
    measure_source,
    split_indices,
)
from lerobot_craft.anchors._statistics import TargetStatistics
from lerobot_craft.errors import CacheError

METADATA = "metadata.json"
TARGETS = ("teacher_hidden", "target_features", "labels")
_SHARD_FILE = re.compile(r"shard_(\d+)\.pt")
# Sequences that each batch of the older tools padded to its own longest.
_PADDING = {"input_ids": 0, "attention_mask": 0, "labels": -100}
_SHARD_COUNT_KEYS = ("num_shards", "n_shards", "shard_count", "total_shards")

type Row = dict[str, Tensor]


@dataclass(frozen=True)
class _Part:
    """One older shard: its file, and how many anchors it holds."""

    path: Path
    count: int


class LegacyCache:
    """An older cache, with the reading interface of `AnchorCache`. Use `LegacyCache.open` or `open_cache`.

    Attributes:
        directory: Where it is.
        metadata: What its `metadata.json` says, unchecked.
    """

    def __init__(
        self, directory: Path, metadata: Mapping[str, Any], parts: Sequence[_Part], lengths: Mapping[str, int]
    ) -> None:
        self.directory = directory
        self.metadata = metadata
        self._parts = tuple(parts)
        self._owner = [(part, row) for part in self._parts for row in range(part.count)]
        self._lengths = dict(lengths)
        self._statistics: dict[str, TargetStatistics] = {}
        self._names = frozenset(_load(self._parts[0].path)[0])

    @classmethod
    def open(cls, directory: Path | str) -> "LegacyCache":
        """Open an older cache. Every shard is looked into once, one at a time.

        Raises:
            CacheError: There is none, a shard is missing or damaged, or holds anything but tensors.
        """
        root = Path(directory)
        metadata = _read_metadata(root)
        parts: list[_Part] = []
        names: frozenset[str] | None = None
        lengths: dict[str, int] = {}
        for path in _shard_paths(root, metadata):
            rows = _load(path)
            parts.append(_Part(path, len(rows)))
            found = frozenset(rows[0])
            if not found & frozenset(TARGETS):
                raise CacheError(f"`{path}` got {sorted(found)}, expected one of {', '.join(TARGETS)} among them.")
            if names not in (None, found):
                raise CacheError(f"`{path}` got {sorted(found)}, expected the same as in the shards before it.")
            names = found
            for name in found & frozenset(_PADDING):
                lengths[name] = max(lengths.get(name, 0), *(row[name].shape[-1] for row in rows))
        return cls(root, metadata, parts, lengths)

    def __len__(self) -> int:
        return len(self._owner)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the anchors hold, read off the tensors: some of `hidden feature tokens`."""
        return kinds_in(self._names & frozenset(TARGETS))

    def __getitem__(self, index: int) -> AnchorBatch:
        """Return one anchor as a batch of one."""
        return self.batch([index])

    def batch(self, indices: Sequence[int] | Tensor) -> AnchorBatch:
        """Return these anchors, in this order; sequences are padded to the longest of the whole cache."""
        wanted = checked_indices(indices, len(self))
        rows = self._read(wanted)
        inputs = sorted(self._names - frozenset(TARGETS))
        frames: dict[str, Tensor | list[str]] = {name: self._stack(name, rows) for name in inputs}
        return AnchorBatch(frames, self._stacked_targets(rows), torch.tensor(wanted))

    def targets(self, indices: Sequence[int] | Tensor) -> dict[str, Tensor]:
        """Return these anchors' targets only."""
        return self._stacked_targets(self._read(checked_indices(indices, len(self))))

    def statistics(self, target: str) -> TargetStatistics:
        """Return how far a hidden target spreads over the anchors; measured at the first call."""
        if target not in self._names:
            raise CacheError(f"`target` got {target!r}, expected one of {', '.join(sorted(self._names))}.")
        if target not in self._statistics:
            self._statistics[target] = measure_source(self, target)
        return self._statistics[target]

    def split(self, held_out_fraction: float, seed: int = 42) -> Split:
        """Split the anchors into those to train on and those to measure drift on."""
        return split_indices(len(self), held_out_fraction, seed)

    def _stacked_targets(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        return {name: self._stack(name, rows) for name in TARGETS if name in self._names}

    def _read(self, indices: Sequence[int]) -> list[Row]:
        found: dict[int, Row] = {}
        for path in dict.fromkeys(self._owner[index][0].path for index in indices):
            rows = _load(path)
            mine = {index for index in indices if self._owner[index][0].path == path}
            # Cloned off the mapping of the file, which is closed when its rows are forgotten.
            found |= {i: {k: v.clone() for k, v in rows[self._owner[i][1]].items()} for i in mine}
        return [found[index] for index in indices]

    def _stack(self, name: str, rows: Sequence[Row]) -> Tensor:
        values = [row[name] for row in rows]
        if name in _PADDING:
            length = self._lengths[name]
            padded = [torch.full((*v.shape[:-1], length), _PADDING[name], dtype=v.dtype) for v in values]
            for space, value in zip(padded, values, strict=True):
                space[..., : value.shape[-1]] = value
            values = padded
        try:
            return torch.stack(values)
        except RuntimeError as error:
            shapes = sorted({tuple(value.shape) for value in values})
            raise CacheError(f"`{self.directory}`: `{name}` got the shapes {shapes}, expected one.") from error


def open_cache(directory: Path | str) -> "AnchorCache | LegacyCache":
    """Open a cache of this or of an older format, told apart by their files.

    Raises:
        CacheError: There is no whole cache there.
    """
    root = Path(directory)
    if not (root / "manifest.json").exists() and any(root.glob("shard_*.pt")):
        return LegacyCache.open(root)
    return AnchorCache.open(root)


def _read_metadata(root: Path) -> dict[str, Any]:
    path = root / METADATA
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CacheError(f"`{path}` is missing: this is no older cache, or one whose build never ended.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CacheError(f"`{path}` cannot be read as JSON ({error}).") from error
    if not isinstance(metadata, dict):
        raise CacheError(f"`{path}` got {type(metadata).__name__}, expected a JSON object.")
    return metadata


def _shard_paths(root: Path, metadata: Mapping[str, Any]) -> list[Path]:
    numbered = {int(m[1]): p.name for p in root.iterdir() if (m := _SHARD_FILE.fullmatch(p.name))}
    declared = [metadata[key] for key in _SHARD_COUNT_KEYS if isinstance(metadata.get(key), int)]
    expected = max([len(numbered), *(number + 1 for number in numbered), *declared])
    missing = sorted(set(range(expected)) - set(numbered))
    if missing or not numbered:
        raise CacheError(f"`{root}` lacks shard {missing[:5]} of {expected}. Copy it again, or build a new cache.")
    return [inside(root, numbered[number]) for number in sorted(numbered)]


def _load(path: Path) -> list[Row]:
    """Load a shard as one mapping of tensors per anchor; nothing in it is executed."""
    data = _unpickle(path)
    if isinstance(data, list) and data and all(isinstance(item, dict) for item in data):
        return [{k: v for k, v in item.items() if isinstance(v, Tensor)} for item in data]
    if isinstance(data, dict):
        columns = {k: v for k, v in data.items() if isinstance(v, Tensor) and k != "meta"}
        sizes = {name: len(column) for name, column in columns.items() if column.ndim}
        if len(set(sizes.values())) == 1 and len(sizes) == len(columns) and min(sizes.values()) > 0:
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        raise CacheError(f"`{path}` got columns of {sizes} anchors, expected one number for all.")
    raise CacheError(f"`{path}` got {type(data).__name__}, expected stacked tensors or a list of samples.")


def _unpickle(path: Path) -> object:
    try:
        # Mapped, so that a batch touches only the anchors it needs. Files from before torch 1.6 cannot be.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise CacheError(
            f"`{path}` holds something other than tensors and plain containers and was not loaded, since "
            f"unpickling it could run code. Build a new cache with `lerobot-craft cache`."
        ) from error
    except (
        OSError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CacheError(f"`{path}` is damaged ({reason}). Copy it again, or build a new cache.") from error
