# SPDX-License-Identifier: Apache-2.0
"""A small synthetic dataset and teacher for the cache's tests."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lerobot_craft.anchors import AnchorCache, CachePlan, build_cache, random_access

torch.set_num_threads(1)


class Synthetic:
    """Frames as LeRobotDataset gives them, and a teacher whose answers are simple functions of them."""

    top = "observation.images.top"
    wrist = "observation.images.wrist"

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def frame(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        smooth = torch.rand(3, 4, 6, generator=generator)
        return {
            self.top: torch.nn.functional.interpolate(smooth[None], (32, 48), mode="bilinear")[0],
            self.wrist: torch.randint(0, 256, (2, 3, 16, 16), generator=generator, dtype=torch.uint8),
            f"{self.wrist}_is_pad": torch.tensor([index % 2 == 0, False]),
            "observation.state": torch.randn(7, generator=generator),
            "timestamp": 0.1 * index,
            "index": torch.tensor(index),
            "task": f"pick up the {'红色方块' if index % 3 else 'cube'} {index}",
            "action": torch.randn(5, 4, generator=generator),
            "action_is_pad": torch.arange(5) > 3,
        }

    def label(self, frames: dict[str, Any]) -> dict[str, Tensor]:
        self.seen.append(frames)
        pixels = frames[self.top].flatten(1)
        return {
            "teacher_hidden": torch.stack([pixels[:, :8], pixels[:, 8:16]], 1).unflatten(2, (2, 4)),
            # Noise from torch's global generator, as flow matching and diffusion draw it.
            "teacher_action": torch.randn(len(pixels), 5, 4) + pixels[:, :1, None],
        }

    @staticmethod
    def plan(count: int = 23, **settings: Any) -> CachePlan:
        defaults: dict[str, Any] = {"kinds": ("hidden", "action", "replay"), "shard_size": 5, "batch_size": 4}
        return CachePlan(**(defaults | {"frame_indices": tuple(range(100, 100 + count))} | settings))

    def build(self, directory: Path, plan: CachePlan | None = None, **options: Any) -> AnchorCache:
        return build_cache(directory, plan or self.plan(), random_access(self.frame), self.label, **options)


@pytest.fixture
def synthetic() -> Synthetic:
    return Synthetic()


@pytest.fixture
def cache(synthetic: Synthetic, tmp_path: Path) -> AnchorCache:
    return synthetic.build(tmp_path / "cache")


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def read_contents() -> Any:
    return contents
