# SPDX-License-Identifier: Apache-2.0
"""Pre- and postprocessor of a run: the teacher's statistics under CRaFT, LeRobot's choice otherwise; widens nothing."""

from typing import Any

import torch
from torch import nn

from lerobot_craft.training import _compat
from lerobot_craft.training._compat import PolicyProcessorPipeline, TrainPipelineConfig
from lerobot_craft.training._config import CraftConfig, Normalization
from lerobot_craft.training._data import Dataset


def make_processors(
    cfg: TrainPipelineConfig,
    craft: CraftConfig,
    policy: nn.Module,
    dataset: Dataset,
    device: torch.device,
) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """Return pre- and postprocessor.

    Under CRaFT the teacher's statistics stay; otherwise, as in LeRobot, a pretrained policy gets the new dataset's.
    """
    pretrained = cfg.policy.pretrained_path
    replace = not cfg.resume and not (keeps_teacher(craft) and pretrained is not None)
    kwargs: dict[str, Any] = {}
    if replace or pretrained is None:
        kwargs["dataset_stats"] = dataset.meta.stats
    if pretrained is not None:
        kwargs |= _overrides(cfg, policy, dataset.meta.stats if replace else None, device)
    pre, post = _compat.make_pre_post_processors(
        policy_cfg=cfg.policy,
        pretrained_path=pretrained,
        pretrained_revision=cfg.policy.pretrained_revision,
        **kwargs,
    )
    return pre, post


def keeps_teacher(craft: CraftConfig) -> bool:
    """Whether the teacher's statistics stay."""
    return craft.enabled and craft.normalization == Normalization.TEACHER


def _overrides(
    cfg: TrainPipelineConfig, policy: nn.Module, stats: dict[str, Any] | None, device: torch.device
) -> dict[str, dict[str, Any]]:
    config: Any = policy.config
    normalizer = {
        "features": {**config.input_features, **config.output_features},
        "norm_map": config.normalization_mapping,
    }
    unnormalizer = {"features": config.output_features, "norm_map": config.normalization_mapping}
    if stats is not None:
        normalizer["stats"] = stats
        unnormalizer["stats"] = stats
    before: dict[str, Any] = {
        "device_processor": {"device": device.type},
        "normalizer_processor": normalizer,
        "rename_observations_processor": {"rename_map": cfg.rename_map},
    }
    after: dict[str, Any] = {"unnormalizer_processor": unnormalizer}
    if _compat.policy_option(cfg.policy, "use_relative_actions", False):
        before["relative_actions_processor"] = {
            "enabled": True,
            "exclude_joints": _compat.policy_option(cfg.policy, "relative_exclude_joints", []),
            "action_names": _compat.policy_option(cfg.policy, "action_feature_names", None),
        }
        after["absolute_actions_processor"] = {"enabled": True}
    return {"preprocessor_overrides": before, "postprocessor_overrides": after}
