# SPDX-License-Identifier: Apache-2.0
"""Reads rows out of one shard without loading the rest of it. It trusts no size or offset it finds there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lerobot_craft.anchors._columns import DTYPES, Column, Encoded
from lerobot_craft.errors import CacheError


@contextmanager
def open_shard(path: Path) -> Iterator[Any]:
    """Open a shard for reading; the mapping is released at the end, so that its pages do not pile up.

    Raises:
        CacheError: It is not a safetensors file, or lacks a column.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as shard:
            yield shard
    except (SafetensorError, OSError) as error:
        raise CacheError(f"`{path}` cannot be read as a shard ({error}). Build the cache again.") from error


def read_columns(path: Path, columns: Sequence[Column], count: int, rows: Sequence[int]) -> dict[Column, list[Encoded]]:
    """Read some rows of some columns.

    Args:
        path: The shard.
        columns: Which columns.
        count: How many anchors the shard must hold.
        rows: Which of them, in the order wanted.
    """
    with open_shard(path) as shard:
        return {column: _read_column(shard, path, column, count, rows) for column in columns}


def read_rows(path: Path, column: Column, count: int) -> Tensor:
    """Read all rows of one tensor column, [count, …]."""
    with open_shard(path) as shard:
        _check(path, column.key, shard.get_slice(column.key).get_shape(), [count, *column.shape])
        values: Tensor = shard.get_tensor(column.key)
        return values.clone()  # off the mapping


def _read_column(
    shard: Any,  # noqa: ANN401 - safetensors' own handle has no types
    path: Path,
    column: Column,
    count: int,
    rows: Sequence[int],
) -> list[Encoded]:
    if column.encoding == "tensor":
        values = shard.get_tensor(column.key)  # of the mapping: nothing is read yet
        _check(path, column.key, list(values.shape), [count, *column.shape])
        if values.dtype != DTYPES[column.dtype]:
            raise CacheError(f"`{path}`: `{column.key}` got {values.dtype}, expected {column.dtype}.")
        # Indexing copies, and once for all rows: a slice would share the mapping of the whole file and keep its pages
        # resident, and slicing row by row took a quarter of a small policy's step.
        return list(values[list(rows)])
    # By numpy: each call into torch hands the interpreter to another thread and back, and beside a training step the
    # thread that reads ahead would hold it up hundreds of times a batch.
    ends = shard.get_tensor(f"{column.key}:ends").numpy()
    blob = shard.get_tensor(f"{column.key}:bytes").numpy()
    _check(path, f"{column.key}:ends", list(ends.shape), [count * column.blobs])
    starts = np.concatenate([ends[:1] * 0, ends[:-1]])
    if ends.dtype != np.int64 or (starts > ends).any() or ends[-1] != len(blob):
        raise CacheError(f"`{path}`: the offsets of `{column.key}` are not in order. Build the cache again.")
    bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
    pieces = [bounds[row * column.blobs : (row + 1) * column.blobs] for row in rows]
    return [[blob[start:end].tobytes() for start, end in anchor] for anchor in pieces]


def _check(path: Path, key: str, got: list[int], expected: list[int]) -> None:
    if got != expected:
        raise CacheError(f"`{path}`: `{key}` got shape {got}, expected {expected}. Build the cache again.")
