# SPDX-License-Identifier: Apache-2.0
"""Turns an older cache into one of this format. The older one is left as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lerobot_craft.anchors._columns import tensor_column
from lerobot_craft.anchors._files import only_one
from lerobot_craft.anchors._fingerprint import canonical_json
from lerobot_craft.anchors._legacy import LegacyCache
from lerobot_craft.anchors._plan import TARGET_DTYPES, CachePlan
from lerobot_craft.anchors._reader import AnchorBatch, AnchorCache
from lerobot_craft.anchors._writer import CacheWriter, Row
from lerobot_craft.errors import CacheError, CraftError

# The names the older tools are known to have used for one thing, in the order they are believed.
_DATASET_KEYS = ("dataset", "dataset_repo_id", "dataset.repo_id", "repo_id", "dataset_id")
_POLICY_KEYS = (
    "teacher",
    "policy_path",
    "policy.path",
    "policy.pretrained_path",
    "pretrained_path",
    "policy",
    "model",
)
_LAYER_KEYS = ("layers_to_save", "layers", "hidden_layers", "hidden_layer", "layer")
_POOLING_KEYS = ("pooling", "pooling_type", "pool")


def convert_legacy(
    source: Path | str, target: Path | str, *, shard_size: int = 100, overwrite: bool = False
) -> AnchorCache:
    """Write an older cache anew: no pickle, checksums, and a manifest. Values are kept bit for bit.

    Its inputs stay what they were, preprocessed tensors, so only policies that take them can use it; who the
    teacher was is unknown, so its fingerprint is empty. The per-sample `meta` is left behind.

    Args:
        source: The older cache.
        target: The new one; an interrupted conversion goes on where it stopped.
        shard_size: Anchors per shard.
        overwrite: Replace a cache in `target`.

    Raises:
        CacheError: The older cache is damaged, or `target` holds something else.
    """
    legacy = LegacyCache.open(source)
    root = Path(target)
    if root.resolve() == Path(source).resolve():
        raise CacheError(f"`target` got `{root}`, which is the older cache itself, expected another folder.")
    plan = _plan(legacy, shard_size)
    root.mkdir(parents=True, exist_ok=True)
    with only_one(root):
        writer = CacheWriter(root, plan, overwrite=overwrite)
        if not writer.whole:
            for first in range(writer.done, len(legacy), plan.batch_size):
                writer.append(_rows(legacy.batch(range(first, min(first + plan.batch_size, len(legacy))))))
        writer.publish()
    return AnchorCache.open(root)


def _rows(batch: AnchorBatch) -> list[Row]:
    rows: list[Row] = [{} for _ in batch.indices]
    for role, columns in (("frame", batch.frames), ("target", batch.targets)):
        for name, values in columns.items():
            for row, value in zip(rows, values, strict=True):
                if isinstance(value, Tensor):
                    row[tensor_column(name, role, value)] = value
    return rows


def _plan(legacy: LegacyCache, shard_size: int) -> CachePlan:
    metadata = legacy.metadata
    dtypes = {str(value.dtype).removeprefix("torch.") for value in legacy.targets([0]).values()}
    try:
        canonical_json(dict(metadata))
    except CraftError as error:
        raise CacheError(f"`{legacy.directory}`: metadata.json holds NaN or infinity ({error}).") from error
    seed = metadata.get("seed")
    return CachePlan(
        kinds=legacy.kinds,
        frame_indices=tuple(range(len(legacy))),
        policy_path=_text(metadata, _POLICY_KEYS),
        dataset=_text(metadata, _DATASET_KEYS),
        layers=_layers(metadata),
        pooling=_text(metadata, _POOLING_KEYS),
        dtype=next((name for name in TARGET_DTYPES if name in dtypes), "float32"),
        seed=seed if type(seed) is int else 42,
        shard_size=shard_size,
        extra={"converted_from": {"format": "shard_0000.pt", "metadata": dict(metadata)}},
    )


def _text(metadata: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((metadata[key] for key in keys if isinstance(metadata.get(key), str)), None)


def _layers(metadata: Mapping[str, Any]) -> tuple[int, ...] | None:
    for key in _LAYER_KEYS:
        value = metadata.get(key)
        if type(value) is int:
            return (value,)
        if isinstance(value, list) and value and all(type(layer) is int for layer in value):
            return tuple(value)
    return None
