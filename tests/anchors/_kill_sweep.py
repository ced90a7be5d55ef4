# SPDX-License-Identifier: Apache-2.0
"""Kills a build before each of its file operations in turn, goes on, and compares bytes. Run by a test.

    python _kill_sweep.py FOLDER fresh|overwrite
    python _kill_sweep.py FOLDER build SECONDS_PER_BATCH

An audit hook sees every open, rename, removal and new folder of the interpreter; SIGKILL at the n-th of them
leaves what a power cut there would leave. Each build runs in a fork, so that torch is imported once.
"""

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lerobot_craft.anchors import AnchorCache, CachePlan, build_cache, random_access

torch.set_num_threads(1)
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")


def frame(index: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(index)
    return {
        "observation.image": torch.rand(3, 8, 8, generator=generator),
        "task": f"task {index}",
        "index": torch.tensor(index),
    }


def build(directory: Path, *, seed: int = 1, overwrite: bool = False, pause: float = 0.0) -> None:
    def label(frames: dict[str, Any]) -> dict[str, torch.Tensor]:
        time.sleep(pause)
        noise = torch.randn(len(frames["task"]), 6)
        return {"target_features": frames["observation.image"].flatten(1)[:, :6] + noise}

    indices = tuple(range(4))
    plan = CachePlan(kinds=("feature",), frame_indices=indices, shard_size=2, batch_size=3, seed=seed)
    build_cache(directory, plan, random_access(frame), label, overwrite=overwrite)


def in_fork(work: Callable[[], None]) -> int:
    """Run in a child process; return the signal it died of, or its exit status as a negative number."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def kill_before(directory: Path, number: int) -> None:
    """Arrange for SIGKILL before the `number`-th operation under `directory`."""
    prefix = str(directory)
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in EVENTS and str(arguments[0]).startswith(prefix):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def killed_build(directory: Path, number: int, *, overwrite: bool) -> int:
    def work() -> None:
        kill_before(directory, number)
        build(directory, overwrite=overwrite)

    return in_fork(work)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def sweep(root: Path, *, overwrite: bool) -> int:
    reference = root / "reference"
    build(reference)  # in this process, so that the forks find every lazy import done
    expected = contents(reference)
    older = root / "older"
    assert in_fork(lambda: build(older, seed=2)) == 0
    directory = root / "cache"
    for number in range(1, 1000):
        if overwrite:
            shutil.copytree(older, directory)
        else:
            directory.mkdir()
        ended = killed_build(directory, number, overwrite=overwrite)
        assert ended in (0, signal.SIGKILL), ended
        if overwrite and ended and not (directory / "_build" / "manifest.json").exists():
            whole = AnchorCache.open(directory, verify=True).manifest.plan.seed
            assert whole in (1, 2), "the older cache stays until the new one is whole"
        if number % 4 == 0:  # and killed once more
            killed_build(directory, number // 2 + 1, overwrite=overwrite)
        assert in_fork(lambda: build(directory, overwrite=overwrite)) == 0
        assert contents(directory) == expected, f"killed before operation {number}"
        shutil.rmtree(directory)
        if ended == 0:
            return number - 1
    raise AssertionError("the build never ended")


if __name__ == "__main__":
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    if mode == "build":
        build(folder, pause=float(sys.argv[3]))
    else:
        print(sweep(folder, overwrite=mode == "overwrite"))  # noqa: T201 - the test reads it
