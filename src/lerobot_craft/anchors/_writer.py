# SPDX-License-Identifier: Apache-2.0
"""Writes the shards of a cache so that it can be killed at any moment. It computes no targets.

    directory/_build/shard_00000.safetensors …   whole shards of the build in progress
    directory/_build/build.json                  its plan, and the checksums of those shards
    directory/_build/manifest.json               the build is whole, only not moved yet
    directory/manifest.json                      the cache

Shards are moved out of `_build` only when all of them are there, so an older cache stays until then. Every
state a kill can leave is one that `CacheWriter` goes on from.
"""

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from lerobot_craft.anchors._columns import Column, Encoded, pack_column
from lerobot_craft.anchors._files import sha256_file, sync_folder, write_whole
from lerobot_craft.anchors._fingerprint import Json
from lerobot_craft.anchors._manifest import MANIFEST, Manifest, Shard, shard_name
from lerobot_craft.anchors._plan import CachePlan
from lerobot_craft.anchors._shards import read_rows
from lerobot_craft.anchors._statistics import measure_statistics
from lerobot_craft.errors import CacheError

type Row = dict[Column, Encoded]

BUILD_FOLDER = "_build"
PROGRESS = "build.json"
_SHARD_FILE = re.compile(r"shard_\d{5,}\.safetensors")
_MEASURED = ("teacher_hidden", "target_features")


class CacheWriter:
    """Appends anchors in order and publishes the cache at the end.

    Args:
        directory: The cache's folder; made if missing.
        plan: What is built. A half-built folder goes on only with an equal plan.
        overwrite: Replace a cache, or a half-built one with another plan.

    Raises:
        CacheError: The folder holds a cache or another plan's build and `overwrite` is false, or other files.
    """

    def __init__(self, directory: Path, plan: CachePlan, *, overwrite: bool = False) -> None:
        self._directory = directory
        self._build = directory / BUILD_FOLDER
        self._plan = plan
        self._rows: list[Row] = []
        self._manifest = Manifest(plan, (), (), {})
        _refuse_foreign_files(directory)
        self.whole = (directory / MANIFEST).exists() and not overwrite
        """Whether the cache was there already, built from the same plan."""
        if self.whole:
            self._manifest = _read_manifest(directory / MANIFEST)
            differences = self._manifest.plan.differences(plan, versions=False)
            _refuse_difference(differences, directory, "holds a cache")
        else:
            self._resume(overwrite=overwrite)

    @property
    def done(self) -> int:
        """How many anchors are in whole shards; the next to append comes after them."""
        return self._manifest.count

    def append(self, rows: Sequence[Row]) -> None:
        """Add anchors; each time a shard's worth is there, it is written."""
        if not self._build.is_dir():
            self._start()
        self._rows.extend(rows)
        size = self._plan.shard_size
        while len(self._rows) >= size or (self._rows and self.done + len(self._rows) == len(self._plan)):
            self._write_shard(self._rows[:size])
            del self._rows[:size]

    def publish(self) -> None:
        """Measure the targets' spread, write the manifest and put the cache in its place."""
        if self.whole:
            return
        if self.done != len(self._plan):
            raise CacheError(f"`{self._directory}` got {self.done} anchors, expected {len(self._plan)}.")
        if not (self._build / MANIFEST).exists():
            statistics = {column.name: self._measure(column) for column in self._measured_columns()}
            whole = Manifest(self._plan, self._manifest.columns, self._manifest.shards, statistics)
            write_whole(self._build / MANIFEST, whole.to_text().encode())
        self._move_into_place()

    def _start(self) -> None:
        self._build.mkdir(parents=True, exist_ok=True)
        self._save_progress()

    def _save_progress(self) -> None:
        write_whole(self._build / PROGRESS, self._manifest.to_text().encode())

    def _resume(self, *, overwrite: bool) -> None:
        """Take over the shards of an equal plan that are still whole, up to the first that is not."""
        name = next((name for name in (MANIFEST, PROGRESS) if (self._build / name).exists()), None)
        if name is None:
            return
        try:
            pending = _read_manifest(self._build / name, partial=name == PROGRESS)
            differences = pending.plan.differences(self._plan)
            _refuse_difference(differences, self._directory, "holds a half-built cache")
        except CacheError:
            if not overwrite:
                raise
            shutil.rmtree(self._build)
            return
        kept: list[Shard] = []
        for shard in pending.shards:
            # A build that was whole may have been killed while its shards were moved out.
            path = next((p for p in self._places(shard.file) if _is_shard(p, shard)), None)
            if path is None:
                (self._build / MANIFEST).unlink(missing_ok=True)
                break
            kept.append(shard)
        columns = pending.columns if kept else ()
        self._manifest = Manifest(self._plan, columns, tuple(kept), {})

    def _places(self, file: str) -> tuple[Path, Path]:
        return self._build / file, self._directory / file

    def _write_shard(self, rows: Sequence[Row]) -> None:
        columns = tuple(sorted(rows[0], key=lambda column: column.key))
        for offset, row in enumerate(rows):
            _refuse_other_columns(self.done + offset, columns, row)
        if self._manifest.columns:
            _refuse_other_columns(self.done, self._manifest.columns, rows[0])
        tensors: dict[str, Tensor] = {}
        for column in columns:
            tensors |= pack_column(column, [row[column] for row in rows])
        data = save(tensors)
        name = shard_name(len(self._manifest.shards))
        write_whole(self._build / name, data)
        shard = Shard(name, len(rows), len(data), hashlib.sha256(data).hexdigest())
        self._manifest = Manifest(self._plan, columns, (*self._manifest.shards, shard), {})
        self._save_progress()

    def _measured_columns(self) -> Iterator[Column]:
        return (column for column in self._manifest.columns if column.name in _MEASURED and column.shape[-1] > 0)

    def _measure(self, column: Column) -> dict[str, Json]:
        mask = next((c for c in self._manifest.columns if c.name == f"{column.name}_mask"), None)

        def chunks() -> Iterator[tuple[Tensor, Tensor | None]]:
            for shard in self._manifest.shards:
                path = next(path for path in self._places(shard.file) if path.exists())
                values = read_rows(path, column, shard.count)
                yield values, None if mask is None else read_rows(path, mask, shard.count)

        per_layer = mask is not None or self._plan.pooling == "tokens"
        return measure_statistics(chunks, per_layer=per_layer).to_json()

    def _move_into_place(self) -> None:
        (self._build / PROGRESS).unlink(missing_ok=True)
        (self._directory / MANIFEST).unlink(missing_ok=True)
        sync_folder(self._directory)
        for shard in self._manifest.shards:
            source, target = self._places(shard.file)
            if source.exists():
                source.replace(target)
        mine = {shard.file for shard in self._manifest.shards}
        for path in self._directory.iterdir():
            if _SHARD_FILE.fullmatch(path.name) and path.name not in mine:
                path.unlink()
        sync_folder(self._directory)
        (self._build / MANIFEST).replace(self._directory / MANIFEST)
        shutil.rmtree(self._build)
        sync_folder(self._directory)


def _read_manifest(path: Path, *, partial: bool = False) -> Manifest:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CacheError(f"`{path}` cannot be read ({error}). Build the cache again with overwrite.") from error
    return Manifest.from_text(text, path, partial=partial)


def _is_shard(path: Path, shard: Shard) -> bool:
    return path.is_file() and path.stat().st_size == shard.bytes and sha256_file(path) == shard.sha256


def _refuse_foreign_files(directory: Path) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise CacheError(f"`directory` got `{directory}`, which is a file, expected a folder.")
    ours = (MANIFEST, BUILD_FOLDER)
    foreign = [p.name for p in directory.iterdir() if p.name not in ours and not _SHARD_FILE.fullmatch(p.name)]
    if foreign and not (directory / MANIFEST).exists() and not (directory / BUILD_FOLDER).exists():
        raise CacheError(
            f"`directory` got `{directory}`, which holds other files ({', '.join(sorted(foreign)[:3])}), "
            f"expected an empty folder, a new one or a cache."
        )


def _refuse_difference(differences: Sequence[str], directory: Path, what: str) -> None:
    if differences:
        raise CacheError(
            f"`{directory}` {what} built with other settings: {'; '.join(differences)}. Give the same "
            f"settings, another folder, or overwrite=True (`--overwrite`) to replace it."
        )


def _refuse_other_columns(index: int, columns: Sequence[Column], row: Row) -> None:
    differences = sorted(set(columns) ^ set(row), key=lambda column: column.key)
    if differences:
        got = [column for column in differences if column in row]
        expected = [column for column in differences if column not in row]
        raise CacheError(
            f"anchor {index} got {_describe(got)}, expected {_describe(expected)} as in those before it. "
            f"Every anchor of a cache has the same columns and shapes: pad tokens to one length."
        )


def _describe(columns: Sequence[Column]) -> str:
    return ", ".join(f"`{c.name}` {c.encoding} {c.dtype} {list(c.shape)}" for c in columns) or "no such column"
