# SPDX-License-Identifier: Apache-2.0
"""A contract on every LeRobot name that `_compat.py` touches: a release that moves one fails here, by name."""

import importlib.metadata
import inspect
from typing import TYPE_CHECKING

import pytest

from lerobot_craft.training import _compat

if TYPE_CHECKING:
    from collections.abc import Callable

# The arguments we pass, by the function we pass them to.
CALLS: dict[str, tuple[str, ...]] = {
    "EpisodeAwareSampler": (
        "dataset_from_indices",
        "dataset_to_indices",
        "episode_indices_to_use",
        "drop_n_last_frames",
        "shuffle",
        "seed",
        "absolute_to_relative_idx",
    ),
    "AverageMeter": ("name", "fmt", "reduction"),
    "MetricsTracker": ("batch_size", "num_frames", "num_episodes", "metrics", "initial_step", "accelerator"),
    "WandBLogger": ("cfg",),
    "close_envs": (),
    "compute_sampler_state": ("step", "num_frames", "batch_size", "num_processes"),
    "cycle": ("iterable",),
    "deserialize_rng_state": ("rng_state_dict",),
    "eval_policy_all": (
        "envs",
        "policy",
        "env_preprocessor",
        "env_postprocessor",
        "preprocessor",
        "postprocessor",
        "n_episodes",
        "videos_dir",
        "max_episodes_rendered",
        "start_seed",
        "max_parallel_tasks",
    ),
    "format_big_number": ("num",),
    "gather_fsdp_state_dicts": ("model", "optimizer"),
    "get_step_checkpoint_dir": ("output_dir", "total_steps", "step"),
    "get_step_identifier": ("step", "total_steps"),
    "has_method": (),
    "init_logging": ("accelerator",),
    "inside_slurm": (),
    "lerobot_collate_fn": (),
    "load_fsdp_optimizer_state": ("model", "optimizer", "checkpoint_dir"),
    "load_training_batch_size": ("checkpoint_dir",),
    "load_training_num_processes": ("checkpoint_dir",),
    "load_training_state": ("checkpoint_dir", "optimizer", "scheduler", "load_optimizer"),
    "make_env": ("n_envs", "use_async_envs"),
    "make_env_pre_post_processors": ("env_cfg", "policy_cfg"),
    "make_optimizer_and_scheduler": ("cfg", "policy"),
    "make_policy": ("cfg", "ds_meta", "rename_map"),
    "make_pre_post_processors": ("policy_cfg", "pretrained_path", "pretrained_revision"),
    "make_sample_weighter": ("config", "policy", "device"),
    "make_train_eval_datasets": ("cfg",),
    "push_checkpoint_to_hub": ("checkpoint_dir", "repo_id", "private"),
    "register_third_party_plugins": (),
    "save_checkpoint": (
        "checkpoint_dir",
        "step",
        "cfg",
        "policy",
        "optimizer",
        "scheduler",
        "preprocessor",
        "postprocessor",
        "num_processes",
        "batch_size",
        "model_state_dict",
        "optim_state_dict",
    ),
    "serialize_rng_state": (),
    "set_seed": ("seed", "accelerator"),
    "should_save_checkpoint": ("step", "save_freq", "total_steps"),
}
OURS = {"make_accelerator", "parser_memory", "policy_option"}
METHODS: dict[str, tuple[str, ...]] = {
    "EpisodeAwareSampler": ("load_state_dict", "__len__"),
    "MetricsTracker": ("step", "update_metrics", "reduce_across_ranks", "to_dict", "reset_averages"),
    "NormalizerProcessorStep": ("state_dict", "load_state_dict"),
    "PolicyProcessorPipeline": ("save_pretrained", "push_to_hub", "from_pretrained"),
    "TrainPipelineConfig": ("validate", "from_pretrained", "to_dict"),
    "UnnormalizerProcessorStep": ("state_dict", "load_state_dict"),
    "WandBLogger": ("log_dict", "log_policy", "log_video"),
}
CLASSES = {"Accelerator", "DistributedType", "JobConfig", *METHODS}
CONSTANTS = {
    "CHECKPOINTS_DIR": "checkpoints",
    "LAST_CHECKPOINT_LINK": "last",
    "PRETRAINED_MODEL_DIR": "pretrained_model",
    "TRAINING_STATE_DIR": "training_state",
    "TRAIN_CONFIG_NAME": "train_config.json",
}


def test_release() -> None:
    assert importlib.metadata.version("lerobot") == "0.6.1"


def test_every_name_has_a_contract() -> None:
    assert set(_compat.__all__) == {*CALLS, *OURS, *CLASSES, *CONSTANTS, "parser"}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_takes_what_we_pass(name: str) -> None:
    function: Callable[..., object] = vars(_compat)[name]
    parameters = inspect.signature(function).parameters
    several = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    missing = [argument for argument in CALLS[name] if argument not in parameters]
    assert missing == [] or several, f"{name} lost {missing}; it has {list(parameters)}"
    passed = set(CALLS[name])
    needed = {p.name for p in parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    if passed:
        # Positional arguments that we pass by place are listed by name too, so anything else is new.
        assert needed - passed <= {"cfg"} | BY_PLACE.get(name, set()), f"{name} now also needs {needed - passed}"


BY_PLACE = {"make_env": {"cfg"}, "make_sample_weighter": set()}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_has_the_methods_we_call(name: str) -> None:
    kind = vars(_compat)[name]
    assert [method for method in METHODS[name] if not callable(getattr(kind, method, None))] == []


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_folder_names(name: str) -> None:
    assert vars(_compat)[name] == CONSTANTS[name]


def test_parser() -> None:
    assert list(inspect.signature(_compat.parser.print_scoped_help).parameters) == ["config_class", "cli_args"]
    assert list(inspect.signature(_compat.parser.wrap).parameters) == ["config_path"]


def test_settings_have_the_fields_we_read() -> None:
    import dataclasses

    fields = {field.name for field in dataclasses.fields(_compat.TrainPipelineConfig)}
    assert fields == {
        *("dataset", "env", "policy", "reward_model", "output_dir", "job_name", "resume", "seed"),
        *("cudnn_deterministic", "num_workers", "batch_size", "prefetch_factor", "persistent_workers"),
        *("dataloader_multiprocessing_context", "steps", "env_eval_freq", "log_freq", "eval_steps"),
        *("max_eval_samples", "tolerance_s", "save_checkpoint", "save_freq", "use_policy_training_preset"),
        *("optimizer", "scheduler", "eval", "wandb", "peft", "job", "save_checkpoint_to_hub"),
        *("sample_weighting", "rename_map", "checkpoint_path"),
    }
