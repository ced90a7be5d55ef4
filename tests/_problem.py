# SPDX-License-Identifier: Apache-2.0
"""A small problem for training tests: datasets of states, and an ACT policy trained on one of them; no images."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

STATE, ACTION = 6, 3


def make_dataset(root: Path, *, seed: int, shift: float = 0.0, gripper: bool = False, episodes: int = 4) -> Path:
    """Write a dataset whose actions are a fixed function of the state.

    Args:
        root: Its folder.
        seed: Of the states.
        shift: Added to every state and action: another place in the workspace.
        gripper: Whether the last state dimension moves; otherwise it is constant.
        episodes: How many episodes of 10 frames.
    """
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        "observation.state": {"dtype": "float32", "shape": (STATE,), "names": None},
        "observation.environment_state": {"dtype": "float32", "shape": (STATE,), "names": None},
        "action": {"dtype": "float32", "shape": (ACTION,), "names": None},
    }
    dataset = LeRobotDataset.create("craft/small", fps=10, features=features, root=root, use_videos=False)
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(0).normal(size=(STATE, ACTION))
    for episode in range(episodes):
        state = rng.normal(size=STATE)
        for _ in range(10):
            state = state + 0.1 * rng.normal(size=STATE)
            if not gripper:
                state[-1] = 0.5
            dataset.add_frame(
                {
                    "observation.state": (state + shift).astype(np.float32),
                    "observation.environment_state": (state + shift).astype(np.float32),
                    "action": (np.tanh(state @ mixing) + shift).astype(np.float32),
                    "task": f"task {episode % 2}",
                }
            )
        dataset.save_episode()
    dataset.finalize()
    return root


def make_teacher(folder: Path, data: Path, *, steps: int = 30, noise: bool = True, chunk: int = 4) -> Path:
    """Write a checkpoint of a small ACT policy trained on `data`; with `noise` it has dropout and a VAE."""
    from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    torch.manual_seed(0)
    config = ACTConfig(
        input_features={
            "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(STATE,)),
            "observation.environment_state": PolicyFeature(type=FeatureType.ENV, shape=(STATE,)),
        },
        output_features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(ACTION,))},
        normalization_mapping={
            "VISUAL": NormalizationMode.MEAN_STD,
            "STATE": NormalizationMode.MEAN_STD,
            "ENV": NormalizationMode.MEAN_STD,
            "ACTION": NormalizationMode.MEAN_STD,
        },
        chunk_size=chunk,
        n_action_steps=chunk,
        dim_model=16,
        n_heads=2,
        dim_feedforward=32,
        n_encoder_layers=2,
        n_vae_encoder_layers=1,
        latent_dim=4,
        use_vae=noise,
        dropout=0.1 if noise else 0.0,
        device="cpu",
        push_to_hub=False,
    )
    dataset = LeRobotDataset(
        "craft/small", root=data, delta_timestamps={"action": [i / 10 for i in range(config.chunk_size)]}
    )
    policy = ACTPolicy(config)
    pre, post = make_pre_post_processors(config, dataset_stats=dataset.meta.stats)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    done = 0
    while done < steps:
        for batch in loader:
            loss, _ = policy.forward(pre(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
    policy.save_pretrained(folder)
    pre.save_pretrained(folder)
    post.save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class Problem:
    """Where the parts of the problem are.

    Attributes:
        old: Dataset the teacher learned from.
        new: Dataset to learn: shifted by 2, and its last dimension moves.
        teacher: Checkpoint of the teacher.
    """

    old: Path
    new: Path
    teacher: Path

    def flags(self, output: Path, **changes: object) -> list[str]:
        """Return the flags of a short run into `output`; `changes` add to them or replace them."""
        settings: dict[str, object] = {
            "dataset.repo_id": "craft/small",
            "dataset.root": self.new,
            "dataset.video_backend": "pyav",
            "policy.path": self.teacher,
            "output_dir": output,
            "steps": 20,
            "batch_size": 8,
            "env_eval_freq": 0,
            "log_freq": 5,
            "num_workers": 0,
            "save_freq": 10,
        }
        named = {name.replace("__", "."): value for name, value in changes.items()}
        return [f"--{name}={value}" for name, value in {**settings, **named}.items()]


def make_problem(root: Path) -> Problem:
    """Make both datasets and the teacher."""
    problem = Problem(root / "old", root / "new", root / "teacher")
    make_dataset(problem.old, seed=1)
    make_dataset(problem.new, seed=2, shift=2.0, gripper=True)
    make_teacher(problem.teacher, problem.old)
    return problem
