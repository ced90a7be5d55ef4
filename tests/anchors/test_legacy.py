# SPDX-License-Identifier: Apache-2.0
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lerobot_craft.anchors import AnchorBatches, AnchorCache, LegacyCache, convert_legacy, open_cache
from lerobot_craft.errors import CacheError

TARGETS = {"labels": "tokens", "teacher_hidden": "hidden", "target_features": "feature"}


def sample(index: int, target: str, length: int = 6) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(index)
    values: dict[str, Tensor] = {
        "labels": torch.randint(0, 99, (length,), generator=generator),
        "teacher_hidden": torch.randn(2, 2, 8, generator=generator).half(),
        "target_features": torch.randn(8, generator=generator).half(),
    }
    return {
        "pixel_values": torch.randn(3, 8, 8, generator=generator),
        "input_ids": torch.randint(0, 99, (length,), generator=generator),
        "attention_mask": torch.ones(length, dtype=torch.int64),
        target: values[target],
        "meta": {"index": index, "task": f"task {index}"},
    }


def stacked(samples: list[dict[str, Any]]) -> dict[str, Any]:
    columns = {key: [item[key] for item in samples] for key in samples[0]}
    return {key: torch.stack(value) if key != "meta" else value for key, value in columns.items()}


def write(root: Path, target: str, *, as_list: bool = False, metadata: dict[str, Any] | None = None) -> Path:
    """Two shards of 4 and 3 anchors, as `requirements.md` describes them."""
    root.mkdir()
    for number, indices in enumerate((range(4), range(4, 7))):
        samples = [sample(index, target) for index in indices]
        torch.save(samples if as_list else stacked(samples), root / f"shard_{number:04d}.pt")
    (root / "metadata.json").write_text(json.dumps({"num_samples": 7} if metadata is None else metadata))
    return root


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("as_list", [False, True])
def test_the_three_kinds_are_told_apart_by_their_tensors(tmp_path: Path, target: str, as_list: bool) -> None:
    cache = open_cache(write(tmp_path / "old", target, as_list=as_list))
    assert isinstance(cache, LegacyCache)
    assert cache.kinds == (TARGETS[target],)
    assert len(cache) == 7
    batch = cache.batch([6, 0, 6])
    assert set(batch.frames) == {"pixel_values", "input_ids", "attention_mask"}
    assert set(batch.targets) == {target}
    for row, index in enumerate((6, 0, 6)):
        for name in ("pixel_values", "input_ids", "attention_mask"):
            assert torch.equal(batch.frames[name][row], sample(index, target)[name])
        assert torch.equal(batch.targets[target][row], sample(index, target)[target])
    assert torch.equal(cache[3].targets[target], cache.targets([3])[target])
    seen = [int(i) for _, b in zip(range(7), AnchorBatches(cache, 1), strict=False) for i in b.indices]
    assert sorted(seen) == list(range(7))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"num_anchors": 100, "layers_to_save": [-2, -1], "pooling": None},
        {"total": "seven", "hidden_layer": -2, "pooling": "mean_image_tokens", "num_shards": 2},
        {"n_samples": 7, "type": "token", "shards": ["a"]},
    ],
)
def test_whatever_metadata_says_the_tensors_decide(tmp_path: Path, metadata: dict[str, Any]) -> None:
    cache = open_cache(write(tmp_path / "old", "target_features", metadata=metadata))
    assert (len(cache), cache.kinds) == (7, ("feature",))


def test_sequences_of_different_length_are_padded_to_one(tmp_path: Path) -> None:
    root = write(tmp_path / "old", "labels")
    torch.save([sample(9, "labels", length=9), sample(8, "labels", length=4)], root / "shard_0002.pt")
    batch = LegacyCache.open(root).batch([8, 7, 0])
    assert batch.frames["input_ids"].shape == batch.targets["labels"].shape == (3, 9)
    assert batch.frames["attention_mask"].sum(1).tolist() == [4, 9, 6]
    assert (batch.targets["labels"] == -100).sum(1).tolist() == [5, 0, 3]


@pytest.mark.parametrize("target", TARGETS)
def test_conversion_keeps_every_value(tmp_path: Path, target: str) -> None:
    metadata = {
        "layers_to_save": [-2, -1],
        "pooling": "mean_image_tokens",
        "dataset_repo_id": "me/old",
        "seed": 3,
    }
    root = write(tmp_path / "old", target, metadata=metadata)
    old, new = LegacyCache.open(root), convert_legacy(root, tmp_path / "new", shard_size=3)
    assert isinstance(open_cache(tmp_path / "new"), AnchorCache)
    assert new.kinds == old.kinds
    one, other = old.batch(range(7)), new.batch(range(7))
    for name in one.frames:
        assert torch.equal(one.frames[name], other.frames[name])
    assert torch.equal(one.targets[target], other.targets[target])
    plan = new.manifest.plan
    assert (plan.layers, plan.pooling, plan.dataset, plan.seed) == (
        (-2, -1),
        "mean_image_tokens",
        "me/old",
        3,
    )
    if target != "labels":
        torch.testing.assert_close(new.statistics(target).variance, old.statistics(target).variance)
    with pytest.raises(CacheError, match="the older cache itself"):
        convert_legacy(root, root)


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.marker),))


@pytest.mark.parametrize("way", ["zip", "pickle", "in meta"])
def test_a_payload_is_refused_and_not_run(tmp_path: Path, way: str) -> None:
    root = write(tmp_path / "old", "labels")
    marker, shard = tmp_path / "executed", root / "shard_0001.pt"
    if way == "zip":
        torch.save(Payload(marker), shard)
    elif way == "pickle":
        shard.write_bytes(pickle.dumps(Payload(marker), protocol=2))  # what torch.load expects
    else:
        torch.save([sample(1, "labels") | {"meta": Payload(marker)}], shard)
    with pytest.raises(CacheError, match=r"shard_0001.*was not loaded"):
        open_cache(root)
    assert not marker.exists()


def test_damage_gives_one_clear_error_each(tmp_path: Path) -> None:
    root = write(tmp_path / "cut", "labels")
    data = (root / "shard_0001.pt").read_bytes()
    for cut in (0, 1, len(data) // 2, len(data) - 1):
        (root / "shard_0001.pt").write_bytes(data[:cut])
        with pytest.raises(CacheError, match=r"shard_0001\.pt"):
            open_cache(root)
    root = write(tmp_path / "gap", "labels")
    (root / "shard_0000.pt").unlink()
    with pytest.raises(CacheError, match=r"lacks shard \[0\] of 2"):
        open_cache(root)
    root = write(tmp_path / "tail", "labels", metadata={"num_shards": 3})
    with pytest.raises(CacheError, match=r"lacks shard \[2\] of 3"):
        open_cache(root)
    root = write(tmp_path / "meta", "labels")
    (root / "metadata.json").write_text("{")
    with pytest.raises(CacheError, match="cannot be read as JSON"):
        open_cache(root)
    (root / "metadata.json").unlink()
    with pytest.raises(CacheError, match=r"metadata\.json` is missing"):
        open_cache(root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.zeros(3), "got Tensor"),
        ([], "got list"),
        ({"pixel_values": torch.zeros(2, 3)}, "expected one of teacher_hidden"),
        ({"labels": torch.zeros(2, 3), "input_ids": torch.zeros(3, 3)}, "expected one number for all"),
        ({"target_features": torch.zeros(2, 3)}, "expected the same as in the shards before"),
    ],
)
def test_shards_that_hold_something_else(tmp_path: Path, content: Any, message: str) -> None:
    root = write(tmp_path / "old", "labels")
    torch.save(content, root / "shard_0001.pt")
    with pytest.raises(CacheError, match=message):
        open_cache(root)
