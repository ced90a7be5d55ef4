# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several folders of tests share. LeRobot takes 12 s to import, so only fixtures that need it do."""

import hashlib
import os
import shutil
from importlib.metadata import version
from typing import TYPE_CHECKING

# Before anything imports LeRobot: tests are offline, and one thread is deterministic and faster on a busy machine.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

from pathlib import Path

import pytest
import torch
from filelock import FileLock
from tests._caches import build_anchors
from tests._problem import Problem, make_problem, make_teacher

if TYPE_CHECKING:
    from collections.abc import Callable

    from lerobot_craft.testing import TinyPaths


@pytest.fixture(autouse=True)
def deterministic() -> None:
    """Start every test from the same random state."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_tiny_once(request: pytest.FixtureRequest) -> "Callable[[str], TinyPaths]":
    """Give the tiny checkpoint and dataset of a policy type, made once and kept until its sources change."""
    import lerobot_craft.testing as support

    digest = hashlib.sha256(f"{version('lerobot')} {version('torch')}".encode())
    for source in sorted(Path(support.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("tiny") / digest.hexdigest()[:16]

    def make(policy_type: str) -> "TinyPaths":
        target = folder / policy_type
        done = target / "done"
        folder.mkdir(exist_ok=True)
        # The suite runs in several processes, and a checkpoint names its own folder: it cannot be made aside and moved.
        with FileLock(folder / f"{policy_type}.lock"):
            if not done.exists():
                shutil.rmtree(target, ignore_errors=True)
                support.make_tiny(policy_type, target)
                done.touch()
        return support.TinyPaths(target / "policy", target / "data")

    return make


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """An old dataset, a new one, and an ACT teacher trained on the old."""
    return make_problem(tmp_path_factory.mktemp("problem"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for outputs of runs that several tests look at."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def act_cache(problem: Problem, runs: Path) -> Path:
    """Anchors of the ACT teacher that hold hidden states, its actions, and the old dataset's."""
    kinds = ("hidden", "action", "replay")
    where = {"policy_path": problem.teacher, "data": problem.old, "repo_id": "craft/small"}
    return build_anchors(runs / "act-cache", **where, kinds=kinds, pooling="mean_masked")


@pytest.fixture(scope="session")
def other_teacher(problem: Problem, runs: Path) -> Path:
    """A teacher of the same shape with other weights."""
    return make_teacher(runs / "other-teacher", problem.old, steps=3)
