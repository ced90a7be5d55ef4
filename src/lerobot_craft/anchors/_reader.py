# SPDX-License-Identifier: Apache-2.0
"""Reads a cache: checked on opening, any anchor at any time, in constant memory. It never writes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lerobot_craft.anchors._columns import Column, Encoded, Frames, decode_column
from lerobot_craft.anchors._files import sha256_file
from lerobot_craft.anchors._manifest import MANIFEST, Manifest, inside
from lerobot_craft.anchors._seeds import shuffled
from lerobot_craft.anchors._shards import read_columns
from lerobot_craft.anchors._statistics import TargetStatistics, measure_statistics
from lerobot_craft.anchors._writer import BUILD_FOLDER
from lerobot_craft.errors import CacheError, CraftError


@dataclass(frozen=True)
class AnchorBatch:
    """Anchors, collated.

    Attributes:
        frames: As LeRobotDataset and the default collation give them: tensors [batch, …], lists of text.
        targets: The teacher's answers, [batch, …].
        indices: Which anchors these are, [batch].
    """

    frames: Frames
    targets: dict[str, Tensor]
    indices: Tensor

    def pinned(self) -> "AnchorBatch":
        """Return the same batch in pinned memory; needs a GPU."""
        frames = {name: v.pin_memory() if isinstance(v, Tensor) else v for name, v in self.frames.items()}
        return AnchorBatch(frames, {name: v.pin_memory() for name, v in self.targets.items()}, self.indices)


class Split(NamedTuple):
    """Two disjoint sets of anchor indices, each sorted."""

    train: Tensor
    held_out: Tensor


class AnchorSource(Protocol):
    """What batches and retention terms need of a cache, of this format or of an older one."""

    def __len__(self) -> int:
        """How many anchors there are."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the anchors hold of their teacher."""
        ...

    def batch(self, indices: Sequence[int] | Tensor) -> AnchorBatch:
        """Return these anchors, in this order."""
        ...

    def targets(self, indices: Sequence[int] | Tensor) -> dict[str, Tensor]:
        """Return these anchors' targets only: no image is decoded."""
        ...

    def statistics(self, target: str) -> TargetStatistics:
        """Return how far a hidden target spreads over the anchors."""
        ...


def split_indices(count: int, held_out_fraction: float, seed: int) -> Split:
    """Split `range(count)` at random into anchors to train on and anchors to evaluate on.

    Raises:
        CraftError: The fraction leaves one side empty.
    """
    held = round(count * held_out_fraction)
    if not 0 < held < count:
        raise CraftError(
            f"`held_out_fraction` got {held_out_fraction} of {count} anchors, which holds out {held}, "
            f"expected at least one on each side."
        )
    order = torch.from_numpy(shuffled(count, "split", seed))
    return Split(order[held:].sort().values, order[:held].sort().values)


class AnchorCache:
    """A cache on disk. Use `AnchorCache.open`.

    Attributes:
        directory: Where it is.
        manifest: What it holds.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self._frame_columns = tuple(c for c in manifest.columns if c.role == "frame")
        self._target_columns = tuple(c for c in manifest.columns if c.role == "target")
        self._checked: set[int] = set()

    @classmethod
    def open(cls, directory: Path | str, *, verify: bool = False) -> "AnchorCache":
        """Open a cache: manifest, schema, counts and file sizes are checked now.

        Args:
            directory: Its folder.
            verify: Also compare all checksums now, instead of each before its shard is first used.

        Raises:
            CacheError: There is no whole cache there.
        """
        root = Path(directory)
        path = root / MANIFEST
        if not path.is_file():
            raise CacheError(_why_no_cache(root))
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CacheError(f"`{path}` cannot be read ({error}). Build the cache again.") from error
        cache = cls(root, Manifest.from_text(text, path))
        for number in range(len(cache.manifest.shards)):
            cache._check_size(number)
        if verify:
            for number in range(len(cache.manifest.shards)):
                cache._shard(number)
        return cache

    def __len__(self) -> int:
        return self.manifest.count

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the anchors hold of their teacher: some of `hidden feature action tokens replay`."""
        return self.manifest.kinds

    def __getitem__(self, index: int) -> AnchorBatch:
        """Return one anchor as a batch of one."""
        return self.batch([index])

    def batch(self, indices: Sequence[int] | Tensor) -> AnchorBatch:
        """Return these anchors, in this order, which may repeat.

        Raises:
            CacheError: A shard is damaged.
            IndexError: There is no such anchor.
        """
        wanted = checked_indices(indices, len(self))
        rows = self._read((*self._frame_columns, *self._target_columns), wanted)
        frames: Frames = {column.name: decode_column(column, rows[column]) for column in self._frame_columns}
        return AnchorBatch(frames, self._stacked(rows), torch.tensor(wanted))

    def targets(self, indices: Sequence[int] | Tensor) -> dict[str, Tensor]:
        """Return these anchors' targets only: no image is decoded."""
        return self._stacked(self._read(self._target_columns, checked_indices(indices, len(self))))

    def statistics(self, target: str) -> TargetStatistics:
        """Return how far a hidden target spreads over the anchors, as measured when the cache was built.

        Raises:
            CraftError: The cache has no such target.
        """
        if target not in self.manifest.statistics:
            names = ", ".join(self.manifest.statistics) or "none"
            raise CraftError(f"`target` got {target!r}, expected one the cache has statistics of: {names}.")
        return TargetStatistics.from_json(self.manifest.statistics[target])

    def split(self, held_out_fraction: float, seed: int = 42) -> Split:
        """Split the anchors into those to train on and those to measure drift on."""
        return split_indices(len(self), held_out_fraction, seed)

    def _stacked(self, rows: dict[Column, list[Encoded]]) -> dict[str, Tensor]:
        decoded = {column.name: decode_column(column, rows[column]) for column in self._target_columns}
        return {name: value for name, value in decoded.items() if isinstance(value, Tensor)}

    def _read(self, columns: Sequence[Column], indices: Sequence[int]) -> dict[Column, list[Encoded]]:
        size = self.manifest.plan.shard_size
        found: dict[Column, dict[int, Encoded]] = {column: {} for column in columns}
        for number in sorted({index // size for index in indices}):
            mine = sorted({index for index in indices if index // size == number})
            shard = self.manifest.shards[number]
            part = read_columns(self._shard(number), columns, shard.count, [index % size for index in mine])
            for column, values in part.items():
                found[column].update(zip(mine, values, strict=True))
        return {column: [values[index] for index in indices] for column, values in found.items()}

    def _check_size(self, number: int) -> Path:
        shard = self.manifest.shards[number]
        path = inside(self.directory, shard.file)
        if not path.is_file():
            raise CacheError(f"`{path}` is missing: the manifest names it. Build the cache again with overwrite.")
        size = path.stat().st_size
        if size != shard.bytes:
            raise CacheError(
                f"`{path}` got {size:,} bytes, expected {shard.bytes:,}: it is cut short or was changed. "
                f"Copy it again, or build the cache again with overwrite."
            )
        return path

    def _shard(self, number: int) -> Path:
        """Return the path of a shard whose bytes are what the builder wrote, checked once."""
        path = self.directory / self.manifest.shards[number].file
        if number in self._checked:
            return path
        self._check_size(number)
        expected = self.manifest.shards[number].sha256
        got = sha256_file(path)
        if got != expected:
            raise CacheError(
                f"`{path}` got sha256 {got[:16]}…, expected {expected[:16]}…: it is damaged. "
                f"Copy it again, or build the cache again with overwrite."
            )
        self._checked.add(number)
        return path


def checked_indices(indices: Sequence[int] | Tensor, count: int) -> list[int]:
    """Return indices as a list of non-negative integers.

    Raises:
        IndexError: One is out of range, or there are none.
    """
    values: Iterable[int] = indices.tolist() if isinstance(indices, Tensor) else indices
    wanted = [int(index) for index in values]
    if not wanted or min(wanted) < -count or max(wanted) >= count:
        raise IndexError(f"`indices` got {wanted[:8]}, expected at least one, each in [-{count}, {count}).")
    return [index % count for index in wanted]


def measure_source(source: AnchorSource, target: str, *, chunk: int = 64) -> TargetStatistics:
    """Measure a target's spread by reading it all, for caches whose metadata does not say."""

    def chunks() -> Iterator[tuple[Tensor, Tensor | None]]:
        for first in range(0, len(source), chunk):
            part = source.targets(range(first, min(first + chunk, len(source))))
            yield part[target], part.get(f"{target}_mask")

    has_mask = f"{target}_mask" in source.targets([0])
    return measure_statistics(chunks, per_layer=has_mask)


def _why_no_cache(root: Path) -> str:
    if not root.exists():
        return f"`{root}` does not exist. Build a cache there: `lerobot-craft cache --output_dir={root} …`."
    if (root / BUILD_FOLDER).exists():
        return f"`{root}` is half-built. Give the `lerobot-craft cache` command that began it again: it goes on."
    if any(root.glob("shard_*.pt")):
        return f"`{root}` is a cache of an older format: use `open_cache`, or `convert_legacy`."
    return f"`{root}` has no {MANIFEST}: it is not an anchor cache. Build one with `lerobot-craft cache`."
