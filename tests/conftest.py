# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by all tests. LeRobot takes 12 s to import, so only the fixtures that need it do."""

from __future__ import annotations

import hashlib
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lerobot_craft.testing import TinyPaths

os.environ["HF_HUB_OFFLINE"] = "1"
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_tiny_once(request: pytest.FixtureRequest) -> Callable[[str], TinyPaths]:
    """Give the tiny checkpoint and dataset of a policy type, made once and kept until its sources change."""
    import lerobot_craft.testing as support

    digest = hashlib.sha256(f"{version('lerobot')} {version('torch')}".encode())
    for source in sorted(Path(support.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("tiny") / digest.hexdigest()[:16]

    def make(policy_type: str) -> TinyPaths:
        target = folder / policy_type
        done = target / "done"
        if not done.exists():
            shutil.rmtree(target, ignore_errors=True)
            support.make_tiny(policy_type, target)
            done.touch()
        return support.TinyPaths(target / "policy", target / "data")

    return make
