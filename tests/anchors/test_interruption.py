# SPDX-License-Identifier: Apache-2.0
import json
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lerobot_craft.anchors import AnchorCache, build_cache, random_access
from lerobot_craft.anchors._files import only_one
from lerobot_craft.errors import CacheError

SCRIPT = Path(__file__).parent / "_kill_sweep.py"


@pytest.mark.parametrize("mode", ["fresh", "overwrite"])
def test_killed_before_any_file_operation_it_goes_on_to_the_same_bytes(mode: str) -> None:
    memory = Path("/dev/shm")  # noqa: S108 - a hundred builds wait for as many flushes on a disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        result = subprocess.run(
            [sys.executable, str(SCRIPT), folder, mode], capture_output=True, text=True, check=False
        )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 20  # that many places to die, each of them tried


def test_killed_at_random_moments_it_goes_on_to_the_same_bytes(tmp_path: Path, read_contents: Any) -> None:
    build = runpy.run_path(str(SCRIPT))["build"]
    build(tmp_path / "whole")
    cache = tmp_path / "killed"
    generator = random.Random(0)  # noqa: S311 - when to kill
    for _ in range(2):
        with subprocess.Popen([sys.executable, str(SCRIPT), str(cache), "build", "0.2"]) as process:
            while not cache.exists() and process.poll() is None:  # imports take longer than the build
                time.sleep(0.005)
            time.sleep(generator.uniform(0.0, 0.35))
            process.send_signal(signal.SIGKILL)
    assert not (cache / "manifest.json").exists()
    build(cache)
    assert read_contents(cache) == read_contents(tmp_path / "whole")


class StopError(Exception):
    pass


def failing_label(synthetic: Any, calls: int) -> Any:
    def label(frames: dict[str, Any]) -> dict[str, torch.Tensor]:
        if len(synthetic.seen) == calls:
            raise StopError
        return synthetic.label(frames)

    return label


def interrupt(synthetic: Any, directory: Path, calls: int, **settings: Any) -> None:
    synthetic.seen.clear()
    with pytest.raises(StopError):
        build_cache(
            directory,
            synthetic.plan(**settings),
            random_access(synthetic.frame),
            failing_label(synthetic, calls),
            overwrite=False,
        )


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 4, 5])
def test_an_exception_in_the_teacher_costs_only_its_shard(
    synthetic: Any, tmp_path: Path, read_contents: Any, calls: int
) -> None:
    synthetic.build(tmp_path / "whole")
    interrupt(synthetic, tmp_path / "c", calls)
    synthetic.seen.clear()
    synthetic.build(tmp_path / "c")
    assert read_contents(tmp_path / "c") == read_contents(tmp_path / "whole")
    whole_shards = calls * 4 // 5
    assert len(synthetic.seen) == 6 - whole_shards * 5 // 4  # only batches beyond the whole shards ran again


def test_a_half_built_cache_of_other_settings_is_refused_with_what_differs(synthetic: Any, tmp_path: Path) -> None:
    interrupt(synthetic, tmp_path, 3)
    with pytest.raises(CacheError, match=r"half-built.*`dtype`: 'float16' there, 'float32' here") as caught:
        synthetic.build(tmp_path, synthetic.plan(dtype="float32", seed=7))
    assert "`seed`: 42 there, 7 here" in str(caught.value)
    assert synthetic.build(tmp_path, synthetic.plan(seed=7), overwrite=True).manifest.plan.seed == 7


def test_a_cache_is_not_overwritten_unless_asked(synthetic: Any, tmp_path: Path, read_contents: Any) -> None:
    synthetic.build(tmp_path)
    before = read_contents(tmp_path)
    with pytest.raises(CacheError, match=r"holds a cache.*`seed`.*--overwrite"):
        synthetic.build(tmp_path, synthetic.plan(seed=7))
    assert read_contents(tmp_path) == before
    synthetic.seen.clear()
    synthetic.build(tmp_path)
    assert synthetic.seen == []  # the same plan: nothing to do
    synthetic.build(tmp_path, synthetic.plan(7, seed=7), overwrite=True)
    assert sorted(read_contents(tmp_path)) == [
        "manifest.json",
        "shard_00000.safetensors",
        "shard_00001.safetensors",
    ]


def test_an_overwrite_that_fails_leaves_the_older_cache(synthetic: Any, tmp_path: Path) -> None:
    synthetic.build(tmp_path)
    synthetic.seen.clear()
    with pytest.raises(StopError):
        build_cache(
            tmp_path,
            synthetic.plan(seed=7),
            random_access(synthetic.frame),
            failing_label(synthetic, 4),
            overwrite=True,
        )
    assert AnchorCache.open(tmp_path, verify=True).manifest.plan.seed == 42


def test_a_damaged_shard_of_a_half_built_cache_is_built_again(
    synthetic: Any, tmp_path: Path, read_contents: Any
) -> None:
    synthetic.build(tmp_path / "whole")
    interrupt(synthetic, tmp_path / "c", 5)
    shard = tmp_path / "c" / "_build" / "shard_00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    synthetic.build(tmp_path / "c")
    assert read_contents(tmp_path / "c") == read_contents(tmp_path / "whole")


def test_damaged_progress_is_refused_or_replaced(synthetic: Any, tmp_path: Path) -> None:
    interrupt(synthetic, tmp_path, 3)
    (tmp_path / "_build" / "build.json").write_text("{")
    with pytest.raises(CacheError, match="not JSON"):
        synthetic.build(tmp_path)
    assert len(synthetic.build(tmp_path, overwrite=True)) == 23


def test_a_full_disk_gives_one_clear_error_and_keeps_what_was_whole(
    synthetic: Any, tmp_path: Path, read_contents: Any
) -> None:
    synthetic.build(tmp_path / "whole")
    directory = tmp_path / "c"
    device = directory / "_build" / "shard_00002.safetensors.tmp"

    def fill_disk(done: int, total: int) -> None:
        if done == 8:
            device.symlink_to("/dev/full")  # the kernel answers every write with ENOSPC

    with pytest.raises(CacheError, match=r"shard_00002.*disk is full.*bytes were needed.*same command again"):
        synthetic.build(directory, on_progress=fill_disk)
    assert not device.is_symlink()
    assert len(json.loads((directory / "_build" / "build.json").read_text())["shards"]) == 2
    synthetic.build(directory)
    assert read_contents(directory) == read_contents(tmp_path / "whole")


def test_other_files_are_left_alone(synthetic: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(CacheError, match=r"other files \(thesis.tex\)"):
            synthetic.build(tmp_path, overwrite=overwrite)
    with pytest.raises(CacheError, match="which is a file"):
        synthetic.build(tmp_path / "thesis.tex")


def test_two_builds_at_once_are_refused(synthetic: Any, tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(CacheError, match="being built by another process"):
        synthetic.build(tmp_path)
    assert len(synthetic.build(tmp_path)) == 23


def test_other_library_versions_stop_a_half_built_cache_but_not_a_whole_one(synthetic: Any, tmp_path: Path) -> None:
    interrupt(synthetic, tmp_path / "half", 3)
    newer = synthetic.plan(versions={"torch": "99.0"})
    with pytest.raises(CacheError, match="`versions`"):
        synthetic.build(tmp_path / "half", newer)
    synthetic.build(tmp_path / "whole")
    assert len(synthetic.build(tmp_path / "whole", newer)) == 23
