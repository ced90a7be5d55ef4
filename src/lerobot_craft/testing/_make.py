# SPDX-License-Identifier: Apache-2.0
"""Make a tiny real checkpoint and a small dataset, offline and always the same. Not a policy to deploy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lerobot.datasets.factory import resolve_delta_timestamps
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

from lerobot_craft.errors import CraftError
from lerobot_craft.testing._dataset import REPO_ID, make_data
from lerobot_craft.testing._recipes import ACTION_VOCAB, RECIPES
from lerobot_craft.testing.fast_action_processor import FastActionProcessor

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy

TINY_TYPES: tuple[str, ...] = tuple(RECIPES)
SEED = 0
BATCH = 16


@dataclass(frozen=True)
class TinyPaths:
    """Where `make_tiny` wrote.

    Attributes:
        policy: Checkpoint folder, for `--policy.path`.
        data: Dataset folder, for `--dataset.root` with `--dataset.repo_id=craft/tiny`.
    """

    policy: Path
    data: Path


def make_tiny(policy_type: str, directory: str | Path) -> TinyPaths:
    """Write `directory/policy` and `directory/data` for one of LeRobot's policy types.

    The policy is trained for a few seconds on the dataset, so that it prefers its own actions to others.
    The checkpoint names its tokenizers by absolute path: make it again instead of moving it.

    Args:
        policy_type: One of `TINY_TYPES`. The three pi types become `pi0_tiny`, `pi05_tiny`, `pi0_fast_tiny`.
        directory: A folder that does not hold `policy` or `data` yet; made if missing.

    Raises:
        CraftError: If the type is unknown or the folder is taken.
    """
    if policy_type not in RECIPES:
        raise CraftError(f"`policy_type` is {policy_type!r}, expected one of {', '.join(TINY_TYPES)}.")
    root = Path(directory).resolve()
    paths = TinyPaths(root / "policy", root / "data")
    taken = [str(path) for path in (paths.policy, paths.data) if path.exists()]
    if taken:
        raise CraftError(f"`directory` already holds {', '.join(taken)}; remove it or name another folder.")
    root.mkdir(parents=True, exist_ok=True)
    make_data(paths.data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        _make_policy(policy_type, paths)
    return paths


def load_frames(config: Any, data: Path) -> dict[str, Any]:  # noqa: ANN401 - any policy config
    """Every frame of the dataset as one batch, with the time steps `config` asks for, not preprocessed."""
    steps = resolve_delta_timestamps(config, LeRobotDataset(REPO_ID, root=data).meta)
    dataset = LeRobotDataset(REPO_ID, root=data, delta_timestamps=steps)
    loader = torch.utils.data.DataLoader(dataset, batch_size=len(dataset), shuffle=False)
    batch: dict[str, Any] = next(iter(loader))
    return batch


def _make_policy(policy_type: str, paths: TinyPaths) -> None:
    recipe = RECIPES[policy_type]
    config = recipe.config(paths.policy)
    stats = LeRobotDataset(REPO_ID, root=paths.data).meta.stats
    if policy_type == "pi0_fast":
        _fit_action_tokenizer(config, stats, paths)
    policy = get_policy_class(config.type)(config)
    preprocessor, postprocessor = make_pre_post_processors(config, dataset_stats=stats)
    frames = preprocessor(load_frames(config, paths.data))
    _train(policy, frames, recipe.steps, recipe.learning_rate)
    policy.eval()
    policy.save_pretrained(paths.policy)
    preprocessor.save_pretrained(paths.policy)
    postprocessor.save_pretrained(paths.policy)


def _fit_action_tokenizer(config: Any, stats: dict[str, Any], paths: TinyPaths) -> None:  # noqa: ANN401 - pi0_fast's config
    chunks = load_frames(config, paths.data)["action"].numpy()
    normalised = (chunks - stats["action"]["mean"]) / stats["action"]["std"]
    processor = FastActionProcessor.fit(normalised, scale=10.0, vocab_size=ACTION_VOCAB)
    processor.register_for_auto_class()
    processor.save_pretrained(config.action_tokenizer_name)


def _train(policy: PreTrainedPolicy, frames: dict[str, Any], steps: int, learning_rate: float) -> None:
    policy.train()
    trainable = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)
    for _ in range(steps):
        loss, _info = policy.forward(select(frames, torch.randint(0, frames["index"].shape[0], (BATCH,))))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        schedule.step()


def add_noise_(module: torch.nn.Module, scale: float, seed: int = 0) -> None:
    """Move every weight of `module` by normal noise of `scale` times the spread of its tensor."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            spread = parameter.float().std(correction=0)
            noise = torch.randn(parameter.shape, generator=generator).to(parameter.device)
            parameter.add_((noise * scale * spread).to(parameter.dtype))


def select(batch: dict[str, Any], indices: torch.Tensor) -> dict[str, Any]:
    """The samples of a batch at `indices`; values that are not one per sample stay as they are."""
    size = batch["index"].shape[0]
    picked: dict[str, Any] = {}
    for key, value in batch.items():
        if isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == size:
            picked[key] = value[indices]
        elif isinstance(value, list) and len(value) == size:
            picked[key] = [value[int(index)] for index in indices]
        else:
            picked[key] = value
    return picked
