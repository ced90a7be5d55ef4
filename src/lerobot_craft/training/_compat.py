# SPDX-License-Identifier: Apache-2.0
"""The LeRobot names that move between its releases, gathered in one place; adds no behaviour of its own.

Everything here is LeRobot 0.6.1. The development branch after it drops or changes each of these names while it
still calls itself 0.6.x, so `tests/training/test_compat.py` holds a contract on every signature used.
"""

from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, DistributedType
from lerobot.common.train_utils import (
    gather_fsdp_state_dicts,
    get_step_checkpoint_dir,
    get_step_identifier,
    load_fsdp_optimizer_state,
    load_training_batch_size,
    load_training_num_processes,
    load_training_state,
    push_checkpoint_to_hub,
    save_checkpoint,
    should_save_checkpoint,
)
from lerobot.common.wandb_utils import WandBLogger
from lerobot.configs import parser
from lerobot.configs.default import JobConfig
from lerobot.configs.train import TRAIN_CONFIG_NAME, TrainPipelineConfig
from lerobot.datasets import EpisodeAwareSampler, compute_sampler_state
from lerobot.datasets.factory import make_train_eval_datasets
from lerobot.envs import close_envs, make_env, make_env_pre_post_processors
from lerobot.optim.factory import make_optimizer_and_scheduler
from lerobot.policies import make_policy, make_pre_post_processors
from lerobot.processor import NormalizerProcessorStep, PolicyProcessorPipeline, UnnormalizerProcessorStep
from lerobot.scripts.lerobot_eval import eval_policy_all
from lerobot.utils.collate import lerobot_collate_fn
from lerobot.utils.constants import (
    CHECKPOINTS_DIR,
    LAST_CHECKPOINT_LINK,
    PRETRAINED_MODEL_DIR,
    TRAINING_STATE_DIR,
)
from lerobot.utils.import_utils import register_third_party_plugins
from lerobot.utils.logging_utils import AverageMeter, MetricsTracker
from lerobot.utils.random_utils import deserialize_rng_state, serialize_rng_state, set_seed
from lerobot.utils.sample_weighting import make_sample_weighter
from lerobot.utils.utils import cycle, format_big_number, has_method, init_logging, inside_slurm

if TYPE_CHECKING:
    from lerobot.configs.policies import PreTrainedConfig

__all__ = [
    "CHECKPOINTS_DIR",
    "LAST_CHECKPOINT_LINK",
    "PRETRAINED_MODEL_DIR",
    "TRAINING_STATE_DIR",
    "TRAIN_CONFIG_NAME",
    "Accelerator",
    "AverageMeter",
    "DistributedType",
    "EpisodeAwareSampler",
    "JobConfig",
    "MetricsTracker",
    "NormalizerProcessorStep",
    "PolicyProcessorPipeline",
    "TrainPipelineConfig",
    "UnnormalizerProcessorStep",
    "WandBLogger",
    "close_envs",
    "compute_sampler_state",
    "cycle",
    "deserialize_rng_state",
    "eval_policy_all",
    "format_big_number",
    "gather_fsdp_state_dicts",
    "get_step_checkpoint_dir",
    "get_step_identifier",
    "has_method",
    "init_logging",
    "inside_slurm",
    "lerobot_collate_fn",
    "load_fsdp_optimizer_state",
    "load_training_batch_size",
    "load_training_num_processes",
    "load_training_state",
    "make_accelerator",
    "make_env",
    "make_env_pre_post_processors",
    "make_optimizer_and_scheduler",
    "make_policy",
    "make_pre_post_processors",
    "make_sample_weighter",
    "make_train_eval_datasets",
    "parser",
    "parser_memory",
    "policy_option",
    "push_checkpoint_to_hub",
    "register_third_party_plugins",
    "save_checkpoint",
    "serialize_rng_state",
    "set_seed",
    "should_save_checkpoint",
]


_MISSING = object()


def policy_option(policy: "PreTrainedConfig", name: str, default: Any) -> Any:  # noqa: ANN401 (any setting)
    """Return a setting that only some policy types have; LeRobot has no base class that says which."""
    return getattr(policy, name, default)


def parser_memory() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return what LeRobot's parser remembers of settings files: paths of policies, and what stood beside them."""
    return parser._config_path_args, parser._config_yaml_overrides


def mixed_precision(policy: "PreTrainedConfig") -> str | None:
    """Return accelerate's name for the precision a policy trains in, as `lerobot-train` chooses it.

    A policy with a `dtype` field is followed; one without falls back to `use_amp`.
    """
    dtype = policy_option(policy, "dtype", _MISSING)
    if dtype is not _MISSING:
        return {"bfloat16": "bf16", "float16": "fp16", "float32": "no"}.get(dtype)
    if policy.use_amp:
        autocast_dtype = torch.get_autocast_dtype(torch.device(policy.device).type)
        return {torch.bfloat16: "bf16", torch.float16: "fp16"}[autocast_dtype]
    return None


def make_accelerator(cfg: TrainPipelineConfig) -> Accelerator:
    """Return the accelerator `lerobot-train` would make for `cfg`."""
    return Accelerator(
        # Otherwise accelerate advances the schedule once per process.
        step_scheduler_with_optimizer=False,
        mixed_precision=mixed_precision(cfg.policy),
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
        cpu=cfg.policy.device == "cpu",
    )
