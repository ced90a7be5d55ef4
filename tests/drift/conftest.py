# SPDX-License-Identifier: Apache-2.0
"""A two-task problem whose instruction is a vector, a teacher that follows it, and ways to spoil a checkpoint."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

STATE, INSTRUCTION, ACTION = "observation.state", "observation.environment_state", "action"
VECTORS = np.eye(2, 3, dtype=np.float32)


class Instructed(NamedTuple):
    """Where the parts are.

    Attributes:
        data: A dataset whose action depends on the instruction, which is a vector.
        teacher: Follows it.
        blind: The teacher, trained on with shuffled instructions.
    """

    data: Path
    teacher: Path
    blind: Path


@pytest.fixture(scope="session")
def instructed(tmp_path_factory: pytest.TempPathFactory) -> Instructed:
    root = tmp_path_factory.mktemp("instructed")
    made = Instructed(root / "data", root / "teacher", root / "blind")
    _write_data(made.data)
    torch.manual_seed(0)
    policy, pre, post, frames = _start(made.data)
    _train(policy, frames, lambda batch: batch, steps=80)
    _save(made.teacher, policy, pre, post)
    _train(policy, frames, _shuffled, steps=100)
    _save(made.blind, policy, pre, post)
    return made


def _write_data(root: Path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        name: {"dtype": "float32", "shape": (size,), "names": None}
        for name, size in ((STATE, 4), (INSTRUCTION, 3), (ACTION, 2))
    }
    dataset = LeRobotDataset.create("craft/instructed", fps=10, features=features, root=root, use_videos=False)
    rng = np.random.default_rng(0)
    for episode in range(6):
        task = episode % 2
        for _ in range(12):
            state = rng.normal(size=4).astype(np.float32)
            action = state[:2] if task == 0 else -state[:2]
            frame = {STATE: state, INSTRUCTION: VECTORS[task], ACTION: action, "task": ("follow", "flee")[task]}
            dataset.add_frame(frame)
        dataset.save_episode()
    dataset.finalize()


def _start(data: Path) -> tuple[Any, Any, Any, dict[str, Any]]:
    from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    dataset = LeRobotDataset("craft/instructed", root=data, delta_timestamps={ACTION: [0.0, 0.1]})
    config = ACTConfig(
        input_features={
            STATE: PolicyFeature(type=FeatureType.STATE, shape=(4,)),
            INSTRUCTION: PolicyFeature(type=FeatureType.ENV, shape=(3,)),
        },
        output_features={ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(2,))},
        normalization_mapping={
            "STATE": NormalizationMode.MEAN_STD,
            "ENV": NormalizationMode.IDENTITY,
            "ACTION": NormalizationMode.MEAN_STD,
        },
        chunk_size=2,
        n_action_steps=2,
        dim_model=16,
        n_heads=2,
        dim_feedforward=32,
        n_encoder_layers=2,
        use_vae=False,
        dropout=0.0,
        device="cpu",
        push_to_hub=False,
    )
    pre, post = make_pre_post_processors(config, dataset_stats=dataset.meta.stats)
    frames = next(iter(torch.utils.data.DataLoader(dataset, batch_size=len(dataset))))
    return ACTPolicy(config), pre, post, pre(frames)


def _shuffled(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, INSTRUCTION: batch[INSTRUCTION][torch.randperm(len(batch[INSTRUCTION]))]}


def _train(policy: Any, frames: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]], steps: int) -> None:
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        policy.forward(change(frames))[0].backward()
        optimizer.step()


def _save(folder: Path, *parts: Any) -> None:
    for part in parts:
        part.save_pretrained(folder)


def with_other_weights(source: Path, target: Path, scale: float = 0.1) -> Path:
    """Copy a checkpoint, its weights moved by noise."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    generator = torch.Generator().manual_seed(1)
    weights = load_file(target / "model.safetensors")
    for name, tensor in weights.items():
        # A variance that noise makes negative is no moved weight but a broken one.
        if tensor.is_floating_point() and tensor.numel() > 1 and "running" not in name:
            noise = torch.randn(tensor.shape, generator=generator)
            weights[name] = (tensor.float() + scale * tensor.float().std() * noise).to(tensor.dtype)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


def with_other_statistics(source: Path, target: Path, data: Path) -> Path:
    """Copy a checkpoint, with processors as made for data whose actions are three times as large."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata
    from lerobot.policies.factory import make_pre_post_processors

    shutil.copytree(source, target)
    stats = LeRobotDatasetMetadata("craft/any", root=data).stats
    larger = {**stats, ACTION: {name: 3 * value for name, value in stats[ACTION].items()}}
    _save(target, *make_pre_post_processors(PreTrainedConfig.from_pretrained(source), dataset_stats=larger))
    return target
