# SPDX-License-Identifier: Apache-2.0
"""Builds small anchor caches for training tests straight from the library's parts; not how users build them."""

from pathlib import Path

import torch


def build_anchors(
    directory: Path,
    *,
    policy_path: Path,
    data: Path,
    repo_id: str,
    kinds: tuple[str, ...],
    count: int = 20,
    layers: tuple[int, ...] = (-2, -1),
    pooling: str = "vision_mean_text_last",
) -> Path:
    """Write a cache of the first `count` frames of a dataset, labelled by a policy."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.datasets.factory import resolve_delta_timestamps
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    from lerobot_craft.anchors import CachePlan, build_cache, random_access
    from lerobot_craft.policies import (
        identify_policy,
        identify_processor,
        identify_tap,
        make_tap,
        teacher_actions,
        teacher_tokens,
    )

    config = PreTrainedConfig.from_pretrained(policy_path)
    policy = get_policy_class(config.type).from_pretrained(policy_path, config=config)
    pre, post = make_pre_post_processors(config, pretrained_path=str(policy_path))
    plain = LeRobotDataset(repo_id, root=data)
    dataset = LeRobotDataset(repo_id, root=data, delta_timestamps=resolve_delta_timestamps(config, plain.meta))
    tap = make_tap(policy, layers=layers) if "hidden" in kinds or "feature" in kinds else None
    plan = CachePlan(
        kinds=kinds,
        frame_indices=tuple(range(count)),
        teacher=identify_policy(policy),
        processor=identify_processor(pre),
        policy_path=str(policy_path),
        dataset=repo_id,
        tap=None if tap is None else identify_tap(tap),
        layers=None if tap is None else tap.indices,
        pooling=None if tap is None else pooling,
        dtype="float32",
    )

    def label(frames: dict[str, object]) -> dict[str, torch.Tensor]:
        batch = pre(dict(frames))
        targets: dict[str, torch.Tensor] = {}
        if tap is not None:
            name = "teacher_hidden" if "hidden" in kinds else "target_features"
            targets[name] = tap.features(batch, pooling)
        if "action" in kinds:
            targets["teacher_action"] = post(teacher_actions(policy, batch, seed=0))
        if "tokens" in kinds:
            tokens = teacher_tokens(policy, batch, seed=0)
            targets["labels"], targets["labels_mask"] = tokens.tokens, tokens.mask
        return targets

    build_cache(directory, plan, random_access(dataset.__getitem__), label)
    return directory
