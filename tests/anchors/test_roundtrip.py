# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from lerobot_craft.anchors import AnchorCache, CachePlan, build_cache, canonical_json, random_access
from lerobot_craft.errors import CacheError, CraftError


def test_the_teacher_sees_exactly_what_is_read_back(synthetic: Any, tmp_path: Path) -> None:
    cache = synthetic.build(tmp_path / "c")
    shown = list(synthetic.seen)
    for name in shown[0]:
        read = cache.batch(range(len(cache))).frames[name]
        if isinstance(read, list):
            assert read == [text for frames in shown for text in frames[name]]
        else:
            assert torch.equal(read, torch.cat([frames[name] for frames in shown]))


def test_columns_keep_their_dtype_and_shape(cache: AnchorCache, synthetic: Any) -> None:
    batch = cache.batch([3, 22, 3])
    original = synthetic.frame(103)
    assert batch.indices.tolist() == [3, 22, 3]
    assert batch.frames[synthetic.top].dtype == torch.float32
    assert batch.frames[synthetic.wrist].shape == (3, 2, 3, 16, 16)
    assert batch.frames[f"{synthetic.wrist}_is_pad"].dtype == torch.bool
    assert torch.equal(batch.frames["observation.state"][0], original["observation.state"])
    assert batch.frames["index"].tolist() == [103, 122, 103]
    assert batch.frames["task"] == [original["task"], synthetic.frame(122)["task"], original["task"]]
    assert batch.targets["teacher_hidden"].dtype == torch.float16
    assert batch.targets["teacher_action"].dtype == torch.float32
    assert torch.equal(batch.targets["action"][2], original["action"])
    assert torch.equal(batch.targets["action_is_pad"][0], original["action_is_pad"])
    assert torch.equal(cache[-1].indices, torch.tensor([22]))
    assert torch.equal(cache.targets([22])["action"], cache[22].targets["action"])


def test_jpeg_is_close_and_png_is_exact(synthetic: Any, tmp_path: Path) -> None:
    jpeg = synthetic.build(tmp_path / "jpeg", synthetic.plan(4))
    png = synthetic.build(tmp_path / "png", synthetic.plan(4, image_format="png"))
    original = synthetic.frame(100)
    assert torch.equal(png[0].frames[synthetic.wrist][0], original[synthetic.wrist].float() / 255)
    exact = (original[synthetic.top] * 255).round() / 255
    assert torch.equal(png[0].frames[synthetic.top][0], exact)
    assert 0 < (jpeg[0].frames[synthetic.top][0] - exact).abs().mean() < 2 / 255


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels(channels: int, tmp_path: Path) -> None:
    image = torch.randint(0, 256, (channels, 9, 7), dtype=torch.uint8)
    plan = CachePlan(kinds=("feature",), frame_indices=(0,), image_format="png")
    frames = random_access(lambda _: {"observation.image": image})
    cache = build_cache(tmp_path, plan, frames, lambda batch: {"target_features": torch.zeros(1, 2)})
    assert torch.equal(cache[0].frames["observation.image"][0], image.float() / 255)


def test_the_teacher_is_not_shown_the_datasets_actions(synthetic: Any, tmp_path: Path) -> None:
    cache = synthetic.build(tmp_path / "c", synthetic.plan(kinds=("hidden", "action")))
    assert all("action" not in frames and "action_is_pad" not in frames for frames in synthetic.seen)
    assert cache.kinds == ("hidden", "action")
    assert "action" not in cache[0].targets


def test_all_kinds_in_one_cache(synthetic: Any, tmp_path: Path) -> None:
    def label(frames: dict[str, Any]) -> dict[str, torch.Tensor]:
        n = len(frames["task"])
        return synthetic.label(frames) | {
            "teacher_hidden": torch.randn(n, 2, 6, 4),
            "teacher_hidden_mask": torch.arange(6).expand(n, 6) < 5,
            "target_features": torch.randn(n, 3),
            "labels": torch.arange(n * 4).view(n, 4),
            "labels_mask": torch.ones(n, 4, dtype=torch.bool),
            "topk_values": torch.randn(n, 4, 3),
            "topk_indices": torch.zeros(n, 4, 3, dtype=torch.int32),
        }

    kinds = ("hidden", "feature", "action", "tokens", "replay")
    plan = synthetic.plan(kinds=kinds, dtype="bfloat16", pooling="tokens")
    cache = build_cache(tmp_path, plan, random_access(synthetic.frame), label)
    assert cache.kinds == kinds
    targets = cache.batch([0, 9]).targets
    assert targets["topk_values"].dtype == targets["teacher_hidden"].dtype == torch.bfloat16
    assert targets["topk_indices"].dtype == torch.int32
    assert cache.statistics("teacher_hidden").variance.shape == (2,)
    assert cache.statistics("target_features").variance.shape == ()


def test_prompts_replace_the_task(synthetic: Any, tmp_path: Path) -> None:
    prompts = ("open the drawer", "推", "")
    plan = synthetic.plan(frame_indices=(7, 7, 8), prompts=prompts)
    cache = synthetic.build(tmp_path, plan)
    assert cache.batch([0, 1, 2]).frames["task"] == list(prompts)
    assert synthetic.seen[0]["task"] == list(prompts)


def test_frames_may_come_from_dataloader_workers(synthetic: Any, tmp_path: Path, read_contents: Any) -> None:
    class Frames(torch.utils.data.Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            return synthetic.frame(index)

    def loader(indices: Any) -> Any:
        return DataLoader(Subset(Frames(), indices), batch_size=None, num_workers=1)

    build_cache(tmp_path / "workers", synthetic.plan(), loader, synthetic.label)
    synthetic.build(tmp_path / "direct")
    assert read_contents(tmp_path / "workers") == read_contents(tmp_path / "direct")


def test_equal_plans_give_equal_bytes(synthetic: Any, tmp_path: Path, read_contents: Any) -> None:
    torch.manual_seed(1)
    synthetic.build(tmp_path / "a", batches_ahead=1)
    torch.manual_seed(2)
    synthetic.build(tmp_path / "b", batches_ahead=4)
    assert read_contents(tmp_path / "a") == read_contents(tmp_path / "b")
    synthetic.build(tmp_path / "c", synthetic.plan(seed=43))
    assert read_contents(tmp_path / "a") != read_contents(tmp_path / "c")


def test_building_leaves_the_global_generator_alone(synthetic: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    synthetic.build(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_the_manifest_is_canonical_and_complete(cache: AnchorCache) -> None:
    text = (cache.directory / "manifest.json").read_text()
    data = json.loads(text)
    assert text == canonical_json(data)
    assert data["count"] == 23
    assert data["plan"]["frame_indices"] == list(range(100, 123))
    assert {"torch", "numpy", "safetensors", "pillow", "python"} <= set(data["plan"]["versions"])
    assert [shard["count"] for shard in data["shards"]] == [5, 5, 5, 5, 3]


def test_progress_counts_anchors(synthetic: Any, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    synthetic.build(tmp_path, on_progress=lambda done, total: calls.append((done, total)))
    assert calls == [(4, 23), (8, 23), (12, 23), (16, 23), (20, 23), (23, 23)]


def test_float16_overflow_names_the_cure(synthetic: Any, tmp_path: Path) -> None:
    def label(frames: dict[str, Any]) -> dict[str, torch.Tensor]:
        return {"target_features": torch.full((len(frames["task"]), 3), 1e5)}

    plan = synthetic.plan(kinds=("feature",))
    with pytest.raises(CacheError, match=r"100000.*bfloat16"):
        build_cache(tmp_path, plan, random_access(synthetic.frame), label)
    plan = synthetic.plan(kinds=("feature",), dtype="bfloat16")
    assert len(build_cache(tmp_path / "b", plan, random_access(synthetic.frame), label)) == 23


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"observation.images.top": torch.full((3, 8, 8), 2.0)},
            r"`observation.images.top` got values in \[2, 2\]",
        ),
        ({"observation.images.top": torch.full((3, 8, 8), torch.nan)}, "expected uint8 or float"),
        ({"observation.images.top": torch.zeros(5, 8, 8)}, r"expected \[1 or 3, height, width\]"),
        ({"a:b": torch.zeros(1)}, "without ':'"),
        ({"observation.z": torch.zeros(1, dtype=torch.complex64)}, "complex64"),
        ({"subtask": None}, "`subtask` got NoneType"),
        ({"subtasks": ["a", "b"]}, "`subtasks` got list"),
    ],
)
def test_frames_that_cannot_be_stored(synthetic: Any, tmp_path: Path, change: Any, message: str) -> None:
    frames = random_access(lambda index: synthetic.frame(index) | change)
    with pytest.raises(CraftError, match=message):
        build_cache(tmp_path, synthetic.plan(), frames, synthetic.label)


def test_anchors_of_another_shape_are_refused(synthetic: Any, tmp_path: Path) -> None:
    def frame(index: int) -> dict[str, Any]:
        return synthetic.frame(index) | {"observation.state": torch.zeros(7 if index < last else 6)}

    for last in (102, 104, 105):  # inside a batch, at a batch's start, at a shard's start
        with pytest.raises(CacheError, match=r"`?observation\.state`?"):
            build_cache(tmp_path / str(last), synthetic.plan(), random_access(frame), synthetic.label)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({}, r"\['teacher_hidden'\] is missing"),
        ({"teacher_hidden": torch.zeros(4, 1), "labels": torch.zeros(4)}, r"\['labels'\] unknown"),
        ({"teacher_hidden": torch.zeros(3, 1)}, "for 4 frames"),
    ],
)
def test_labels_that_do_not_fit(synthetic: Any, tmp_path: Path, targets: Any, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        build_cache(
            tmp_path,
            synthetic.plan(kinds=("hidden",)),
            random_access(synthetic.frame),
            lambda frames: targets,
        )


def test_a_source_that_ends_early(synthetic: Any, tmp_path: Path) -> None:
    def short(indices: Any) -> Any:
        return (synthetic.frame(index) for index in indices[:10])

    with pytest.raises(CacheError, match="ended at anchor 10, expected 23"):
        build_cache(tmp_path, synthetic.plan(), short, synthetic.label)


@pytest.mark.parametrize("index", [23, -24])
def test_no_such_anchor(cache: AnchorCache, index: int) -> None:
    with pytest.raises(IndexError, match=r"expected at least one, each in \[-23, 23\)"):
        cache.batch([index])


def test_a_plan_reports_everything_wrong_at_once() -> None:
    with pytest.raises(CraftError) as caught:
        CachePlan(kinds=(), frame_indices=(), dtype="int4", shard_size=0, image_format="gif", image_quality=0)
    for name in ("kinds", "frame_indices", "dtype", "shard_size", "image_format", "image_quality"):
        assert f"`{name}`" in str(caught.value)


def test_split_is_disjoint_complete_and_seeded(cache: AnchorCache) -> None:
    split = cache.split(0.3, seed=1)
    assert len(split.held_out) == 7
    assert sorted([*split.train.tolist(), *split.held_out.tolist()]) == list(range(23))
    assert torch.equal(split.train, cache.split(0.3, seed=1).train)
    assert not torch.equal(split.held_out, cache.split(0.3, seed=2).held_out)
    with pytest.raises(CraftError, match="at least one on each side"):
        cache.split(0.0)


def test_neither_anchors_nor_retention_import_lerobot() -> None:
    code = (
        "import sys, lerobot_craft.anchors, lerobot_craft.retention; "
        "sys.exit(any(name.split('.')[0] == 'lerobot' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
