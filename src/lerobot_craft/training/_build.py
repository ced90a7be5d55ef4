# SPDX-License-Identifier: Apache-2.0
"""What a run is made of, built in `lerobot-train`'s order so that its random numbers fall the same way; trains nothing.

Order: accelerator, seed, datasets, policy, adapters, processors, optimizer, saved state, loaders. Retention is built by
`_retention`, after all of these.
"""

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.data_loader import DataLoaderShard
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError
from peft import PeftModel
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Subset

from lerobot_craft.anchors import AnchorCache, LegacyCache
from lerobot_craft.errors import UsageError
from lerobot_craft.policies import freeze_behind_tap
from lerobot_craft.training import _anchors, _compat, _normalization
from lerobot_craft.training._compat import Accelerator, PolicyProcessorPipeline, TrainPipelineConfig
from lerobot_craft.training._config import CraftConfig, Normalization, RetentionMode

logger = logging.getLogger(__name__)

NOT_FOUND = (
    FileNotFoundError,
    NotADirectoryError,
    EntryNotFoundError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    ConnectionError,
)


@dataclass
class Run:
    """Everything that lives as long as the run.

    Attributes:
        cfg: LeRobot's settings.
        craft: Ours.
        accelerator: Device, precision and processes.
        dataset: The new task's data.
        policy: The policy as the loop calls it: wrapped for several processes where there are several.
        optimizer: Its optimizer.
        scheduler: The learning-rate schedule, if any.
        preprocessor: From a batch of the dataset to a batch of the policy.
        postprocessor: From the policy's action to the robot's.
        loader: Batches of the new task.
        held_out_loader: Batches of held-out episodes, if any were held out.
        sample_weighter: LeRobot's per-sample weights, if asked for.
        step: Steps done so far.
        cache: The anchor cache; None where the mode needs none.
        resumed_random_state: The random state a resumed run goes on with; None once it is in place.
        normalization: The guard's findings; empty where it did not run.
    """

    cfg: TrainPipelineConfig
    craft: CraftConfig
    accelerator: Accelerator
    dataset: Any
    policy: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    preprocessor: PolicyProcessorPipeline
    postprocessor: PolicyProcessorPipeline
    loader: DataLoader[Any]
    held_out_loader: DataLoader[Any] | None
    sample_weighter: Any
    step: int
    cache: AnchorCache | LegacyCache | None = None
    resumed_random_state: dict[str, torch.Tensor] | None = None
    normalization: list[_normalization.FeatureRow] = field(default_factory=list)

    @property
    def is_main(self) -> bool:
        """Whether this process logs and saves."""
        main: bool = self.accelerator.is_main_process
        return main

    @property
    def model(self) -> nn.Module:
        """The policy without the wrapper for several processes."""
        model: nn.Module = self.accelerator.unwrap_model(self.policy)
        return model


def build(cfg: TrainPipelineConfig, craft: CraftConfig, accelerator: Accelerator) -> Run:
    """Build everything but retention.

    Raises:
        UsageError: If the dataset or the policy cannot be found, or the teacher's statistics do not fit.
    """
    if cfg.seed is not None:
        _compat.set_seed(cfg.seed, accelerator=accelerator)
    torch.backends.cudnn.deterministic = cfg.cudnn_deterministic
    torch.backends.cudnn.benchmark = not cfg.cudnn_deterministic
    torch.backends.cuda.matmul.allow_tf32 = True
    dataset, held_out = _datasets(cfg, accelerator)
    policy = _policy(cfg, dataset)
    needs_cache = craft.enabled and craft.mode.needs_anchors and not (cfg.resume and craft.mode is RetentionMode.EWC)
    # The weights of a resumed run are the student's.
    teacher = _anchors.teacher_fingerprint(policy) if needs_cache and not cfg.resume else None
    policy = _with_adapters(cfg, policy)
    accelerator.wait_for_everyone()
    preprocessor, postprocessor = processors(cfg, craft, policy, dataset, accelerator.device)
    cache = None
    if needs_cache:
        cache = _anchors.open_anchors(cfg, craft, accelerator)
        processor = _anchors.processor_fingerprint(preprocessor) if not cfg.resume else None
        tap = _anchors.student_tap(policy, craft, cache) if craft.mode is RetentionMode.HIDDEN else None
        _anchors.check_anchors(cache, cfg, craft, teacher=teacher, processor=processor, tap=tap)
        if tap is not None and craft.freeze_behind_tap:
            freeze_behind_tap(tap)
    rows = _guarded(cfg, craft, preprocessor, postprocessor, dataset)
    optimizer, scheduler = _compat.make_optimizer_and_scheduler(cfg, policy)
    weighter = _sample_weighter(cfg, policy, accelerator)
    is_fsdp = accelerator.distributed_type == _compat.DistributedType.FSDP
    step = 0
    random_state = None
    if cfg.resume:
        step, optimizer, scheduler = _compat.load_training_state(
            cfg.checkpoint_path, optimizer, scheduler, load_optimizer=not is_fsdp
        )
        random_state = _compat.serialize_rng_state()
    loader, sampler_state = _loader(cfg, dataset, accelerator, step)
    held_out_loader = _held_out_loader(cfg, dataset, held_out, accelerator)
    accelerator.wait_for_everyone()
    prepared = accelerator.prepare(
        *(x for x in (policy, optimizer, loader, scheduler, held_out_loader) if x is not None)
    )
    prepared = list(prepared)
    policy, optimizer, loader = prepared[:3]
    scheduler = prepared[3] if scheduler is not None else None
    held_out_loader = prepared[-1] if held_out_loader is not None else None
    if cfg.resume and is_fsdp:
        _compat.load_fsdp_optimizer_state(policy, optimizer, cfg.checkpoint_path)
    if craft.enabled and sampler_state is not None and isinstance(loader, DataLoaderShard):
        # accelerate counts epochs from 0 in every process and overrules the sampler's own count with that.
        loader.iteration = sampler_state["epoch"]
    return Run(
        cfg=cfg,
        craft=craft,
        accelerator=accelerator,
        dataset=dataset,
        policy=policy,
        optimizer=optimizer,
        scheduler=scheduler,
        preprocessor=preprocessor,
        postprocessor=postprocessor,
        loader=loader,
        held_out_loader=held_out_loader,
        sample_weighter=weighter,
        step=step,
        cache=cache,
        # At an epoch's first batch the loader draws one number, in a run without interruption just as in a resumed one;
        # anywhere else only the resumed run draws it, so the state goes back in after the first batch.
        resumed_random_state=random_state if sampler_state is not None and sampler_state["start_index"] > 0 else None,
        normalization=rows,
    )


def _datasets(cfg: TrainPipelineConfig, accelerator: Accelerator) -> tuple[Any, Any]:
    try:
        datasets = None
        # The main process downloads, the others read what it has put there.
        if accelerator.is_main_process:
            logger.info("Creating dataset")
            datasets = _compat.make_train_eval_datasets(cfg)
        accelerator.wait_for_everyone()
        return datasets if datasets is not None else _compat.make_train_eval_datasets(cfg)
    except NOT_FOUND as error:
        root = "" if cfg.dataset.root is None else f" in `--dataset.root={cfg.dataset.root}`"
        raise UsageError(
            f"`--dataset.repo_id={cfg.dataset.repo_id}` was not found{root}: expected a LeRobotDataset on the Hub or on "
            f"disk. For a folder on disk pass `--dataset.root=FOLDER` too. ({type(error).__name__}: {error})"
        ) from error


def _policy(cfg: TrainPipelineConfig, dataset: Any) -> nn.Module:  # noqa: ANN401 (LeRobot's datasets share no base)
    logger.info("Creating policy")
    try:
        policy: nn.Module = _compat.make_policy(cfg=cfg.policy, ds_meta=dataset.meta, rename_map=cfg.rename_map)
    except NOT_FOUND as error:
        raise UsageError(
            f"`--policy.path={cfg.policy.pretrained_path}` could not be loaded: expected a folder or a Hub repository with "
            f"`config.json` and `model.safetensors`. ({type(error).__name__}: {error})"
        ) from error
    return policy


def _with_adapters(cfg: TrainPipelineConfig, policy: nn.Module) -> nn.Module:
    if cfg.peft is None or isinstance(policy, PeftModel):
        return policy
    wrapped: nn.Module = policy.wrap_with_peft(peft_cli_overrides=dataclasses.asdict(cfg.peft))
    return wrapped


def processors(
    cfg: TrainPipelineConfig,
    craft: CraftConfig,
    policy: nn.Module,
    dataset: Any,  # noqa: ANN401 (LeRobot's datasets share no base)
    device: torch.device,
) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """Return pre- and postprocessor.

    Under CRaFT the teacher's statistics stay; otherwise, as in LeRobot, a pretrained policy gets the new dataset's.
    """
    pretrained = cfg.policy.pretrained_path
    replace = not cfg.resume and not (_keeps_teacher(craft) and pretrained is not None)
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


def _keeps_teacher(craft: CraftConfig) -> bool:
    return craft.enabled and craft.normalization == Normalization.TEACHER


def _guarded(
    cfg: TrainPipelineConfig,
    craft: CraftConfig,
    preprocessor: PolicyProcessorPipeline,
    postprocessor: PolicyProcessorPipeline,
    dataset: Any,  # noqa: ANN401 (LeRobot's datasets share no base)
) -> list[_normalization.FeatureRow]:
    if not _keeps_teacher(craft) or cfg.resume:
        return []
    renamed = {cfg.rename_map.get(key, key): value for key, value in dataset.meta.stats.items()}
    return _normalization.guard(preprocessor, postprocessor, renamed)


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


def _sample_weighter(cfg: TrainPipelineConfig, policy: nn.Module, accelerator: Accelerator) -> Any:  # noqa: ANN401
    if cfg.sample_weighting is None:
        return None
    return _compat.make_sample_weighter(
        cfg.sample_weighting,
        policy,
        accelerator.device,
        dataset_root=cfg.dataset.root,
        dataset_repo_id=cfg.dataset.repo_id,
    )


def _loader(
    cfg: TrainPipelineConfig,
    dataset: Any,
    accelerator: Accelerator,
    step: int,
) -> tuple[DataLoader[Any], dict[str, int] | None]:
    sampler = None
    sampler_state = None
    if not cfg.dataset.streaming:
        sampler = _compat.EpisodeAwareSampler(
            dataset.meta.episodes["dataset_from_index"],
            dataset.meta.episodes["dataset_to_index"],
            episode_indices_to_use=dataset.episodes,
            drop_n_last_frames=_compat.policy_option(cfg.policy, "drop_n_last_frames", 0),
            shuffle=True,
            seed=cfg.seed if cfg.seed is not None else 0,
            absolute_to_relative_idx=dataset.absolute_to_relative_idx,
        )
        if cfg.resume and step > 0:
            sampler_state = _resumed_position(cfg, accelerator, step, len(sampler))
            sampler.load_state_dict(sampler_state)
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=cfg.batch_size,
        shuffle=False,
        sampler=sampler,
        **_loader_options(cfg, dataset, accelerator),
    )
    return loader, sampler_state


def _resumed_position(cfg: TrainPipelineConfig, accelerator: Accelerator, step: int, frames: int) -> dict[str, int]:
    processes = _compat.load_training_num_processes(cfg.checkpoint_path) or accelerator.num_processes
    batch_size = _compat.load_training_batch_size(cfg.checkpoint_path) or cfg.batch_size
    if (processes, batch_size) != (accelerator.num_processes, cfg.batch_size):
        logger.warning(
            "The checkpoint was written by %d process(es) with batch size %d, this run has %d and %d: the data order goes "
            "on at the right place, but not with the same batches.",
            *(processes, batch_size, accelerator.num_processes, cfg.batch_size),
        )
    state: dict[str, int] = _compat.compute_sampler_state(step, frames, batch_size, processes)
    return state


def _held_out_loader(
    cfg: TrainPipelineConfig,
    dataset: Any,
    held_out: Any,
    accelerator: Accelerator,
) -> DataLoader[Any] | None:
    if held_out is None:
        return None
    if cfg.max_eval_samples > 0:
        tasks = held_out.hf_dataset.data.column("task_index").to_numpy()
        names = sorted(set(tasks.tolist()))
        share = max(1, cfg.max_eval_samples // len(names))
        held_out = Subset(held_out, [i for name in names for i in (tasks == name).nonzero()[0][:share].tolist()])
    return DataLoader(held_out, batch_size=cfg.batch_size, shuffle=False, **_loader_options(cfg, dataset, accelerator))


def _loader_options(cfg: TrainPipelineConfig, dataset: Any, accelerator: Accelerator) -> dict[str, Any]:  # noqa: ANN401
    workers = cfg.num_workers > 0
    return {
        "num_workers": cfg.num_workers,
        "pin_memory": accelerator.device.type == "cuda",
        "drop_last": False,
        "collate_fn": _compat.lerobot_collate_fn if dataset.meta.has_language_columns else None,
        "prefetch_factor": cfg.prefetch_factor if workers else None,
        "persistent_workers": cfg.persistent_workers and workers,
        "multiprocessing_context": cfg.dataloader_multiprocessing_context if workers else None,
    }
