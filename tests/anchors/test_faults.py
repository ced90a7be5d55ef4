# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

from lerobot_craft.anchors import AnchorCache
from lerobot_craft.errors import CacheError


def edit_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def replace_shard(directory: Path, data: bytes, number: int = 1) -> None:
    """Put other bytes in a shard's place and make the manifest agree, as an attacker would."""
    (directory / f"shard_{number:05d}.safetensors").write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_manifest(directory, lambda manifest: manifest["shards"][number].update(entry))


def use_all(directory: Path) -> None:
    cache = AnchorCache.open(directory)
    cache.batch(range(len(cache)))


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.marker),))


def test_a_truncated_shard_is_seen_on_opening(cache: AnchorCache) -> None:
    shard = cache.directory / "shard_00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CacheError, match=r"shard_00002.*got [\d,]+ bytes, expected"):
        AnchorCache.open(cache.directory)


def test_a_flipped_bit_is_seen_before_use(cache: AnchorCache) -> None:
    shard = cache.directory / "shard_00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    opened = AnchorCache.open(cache.directory)
    assert len(opened.batch([0, 4]).indices) == 2
    with pytest.raises(CacheError, match=r"shard_00001.*sha256.*damaged"):
        opened.batch([0, 5])
    with pytest.raises(CacheError, match="shard_00001"):
        AnchorCache.open(cache.directory, verify=True)


def test_a_missing_shard(cache: AnchorCache) -> None:
    (cache.directory / "shard_00003.safetensors").unlink()
    with pytest.raises(CacheError, match=r"shard_00003.safetensors` is missing"):
        AnchorCache.open(cache.directory)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(count=24),
        lambda data: data["plan"]["frame_indices"].append(1),
        lambda data: data["shards"][0].update(count=4),
        lambda data: data["shards"].pop(),
        lambda data: data["plan"].update(shard_size=6),
    ],
)
def test_counts_that_disagree(cache: AnchorCache, change: Callable[[dict[str, Any]], object]) -> None:
    edit_manifest(cache.directory, change)
    with pytest.raises(CacheError, match="expected one number of anchors"):
        AnchorCache.open(cache.directory)


def test_a_manifest_of_a_newer_schema(cache: AnchorCache) -> None:
    edit_manifest(cache.directory, lambda data: data.update(schema_version=2))
    with pytest.raises(CacheError, match=r"schema_version 2, expected 1. Upgrade lerobot-craft"):
        AnchorCache.open(cache.directory)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "other"}', "[" * 100_000, '"\ud800"'])
def test_a_manifest_that_is_none(cache: AnchorCache, text: str) -> None:
    (cache.directory / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CacheError, match=r"manifest\.json"):
        AnchorCache.open(cache.directory)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("plan"),
        lambda data: data["plan"].pop("seed"),
        lambda data: data["plan"].update(seed="42"),
        lambda data: data["plan"].update(frame_indices="abc"),
        lambda data: data.update(shards=None),
        lambda data: data["shards"][0].update(bytes="1"),
        lambda data: data["shards"][0].update(sha256="00"),
        lambda data: data["shards"][0].update(extra=1),
        lambda data: data["columns"][0].update(encoding="pickle"),
        lambda data: data["columns"][0].update(shape=[-1]),
        lambda data: data["columns"][0].update(dtype="object"),
        lambda data: data["columns"][0].update(role="code"),
    ],
)
def test_a_manifest_with_a_wrong_entry(cache: AnchorCache, change: Callable[[dict[str, Any]], object]) -> None:
    edit_manifest(cache.directory, change)
    with pytest.raises(CacheError, match="is not a valid manifest"):
        AnchorCache.open(cache.directory)


@pytest.mark.parametrize("number", [0, 1])
def test_a_pickle_in_place_of_a_shard_is_refused_and_not_run(cache: AnchorCache, tmp_path: Path, number: int) -> None:
    marker = tmp_path / "executed"
    replace_shard(cache.directory, pickle.dumps(Payload(marker)), number)
    with pytest.raises(CacheError, match="cannot be read as a shard"):
        use_all(cache.directory)
    torch.save({"frame:index": Payload(marker)}, tmp_path / "x.pt")
    replace_shard(cache.directory, (tmp_path / "x.pt").read_bytes(), number)
    with pytest.raises(CacheError, match="cannot be read as a shard"):
        use_all(cache.directory)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["../outside", "{absolute}", "sub/../../outside", "..", ".", "", "a\0b"])
def test_paths_cannot_leave_the_folder(cache: AnchorCache, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes((cache.directory / "shard_00000.safetensors").read_bytes())
    (cache.directory / "sub").mkdir()
    name = name.replace("{absolute}", str(outside))
    edit_manifest(cache.directory, lambda data: data["shards"][0].update(file=name))
    with pytest.raises(CacheError, match="expected a file in that folder"):
        AnchorCache.open(cache.directory)


def test_a_link_out_of_the_folder_is_refused(cache: AnchorCache, tmp_path: Path) -> None:
    shard = cache.directory / "shard_00000.safetensors"
    shard.rename(tmp_path / "outside")
    shard.symlink_to(tmp_path / "outside")
    with pytest.raises(CacheError, match="no symbolic link"):
        AnchorCache.open(cache.directory)


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        (
            "frame:observation.state",
            lambda t: t[:, :6].contiguous(),
            r"got shape \[5, 6\], expected \[5, 7\]",
        ),
        ("frame:observation.state", lambda t: t.double(), r"got torch.float64, expected float32"),
        ("frame:task:ends", lambda t: t.flip(0), "not in order"),
        ("frame:task:ends", lambda t: t - 1, "not in order"),
        ("frame:task:ends", lambda t: t * -1, "not in order"),
        ("frame:task:ends", lambda t: t[:-1].contiguous(), "got shape"),
        ("frame:task:bytes", lambda t: t + 130, "not UTF-8"),
        ("frame:observation.images.top:bytes", lambda t: t.flip(0), "cannot be decoded"),
        ("target:teacher_hidden", lambda t: t[:3].contiguous(), "got shape"),
    ],
)
def test_a_forged_shard_gives_one_clear_error(cache: AnchorCache, key: str, change: Any, message: str) -> None:
    tensors = load_file(cache.directory / "shard_00001.safetensors")
    tensors[key] = change(tensors[key])
    replace_shard(cache.directory, save(tensors))
    with pytest.raises(CacheError, match=message):
        use_all(cache.directory)


def test_a_shard_without_a_column(cache: AnchorCache) -> None:
    tensors = load_file(cache.directory / "shard_00001.safetensors")
    del tensors["target:action"]
    replace_shard(cache.directory, save(tensors))
    with pytest.raises(CacheError, match="target:action"):
        use_all(cache.directory)


def test_an_image_of_another_size_is_refused_before_it_is_unpacked(cache: AnchorCache) -> None:
    def change(data: dict[str, Any]) -> None:
        column = next(c for c in data["columns"] if c["name"] == "observation.images.top")
        column["shape"] = [3, 32, 47]

    edit_manifest(cache.directory, change)
    with pytest.raises(CacheError, match=r"got RGB of 32×48, expected RGB of 32×47"):
        use_all(cache.directory)


def test_what_is_not_a_cache_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="does not exist"):
        AnchorCache.open(tmp_path / "nowhere")
    with pytest.raises(CacheError, match=r"has no manifest\.json"):
        AnchorCache.open(tmp_path)
    (tmp_path / "_build").mkdir()
    with pytest.raises(CacheError, match="half-built"):
        AnchorCache.open(tmp_path)
