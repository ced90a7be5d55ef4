# SPDX-License-Identifier: Apache-2.0
"""What a run is made of, built in `lerobot-train`'s order so that its random numbers fall the same way; trains nothing.

Order: accelerator, seed, datasets, policy, adapters, processors, optimizer, saved state, loaders. Retention is built by
`_retention`, after all of these.
"""

import dataclasses
import logging
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.data_loader import DataLoaderShard
from peft import PeftModel
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from lerobot_craft.errors import UsageError
from lerobot_craft.policies import check_loaded, freeze_behind_tap, identify_policy, identify_processor
from lerobot_craft.training import _anchors, _compat
from lerobot_craft.training._anchors import Cache
from lerobot_craft.training._compat import Accelerator, PolicyProcessorPipeline, TrainPipelineConfig
from lerobot_craft.training._config import CraftConfig, RetentionMode
from lerobot_craft.training._data import NOT_FOUND, Dataset, make_datasets, make_held_out_loader, make_loader
from lerobot_craft.training._normalization import FeatureRow, guard
from lerobot_craft.training._processors import keeps_teacher, make_processors

logger = logging.getLogger(__name__)


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
        resumed_random_state: The random state a resumed run goes on with after its first batch; None once in place.
            At an epoch's first batch the loader draws a number in a run without interruption just as in a resumed one;
            anywhere else only the resumed run does.
        normalization: The guard's findings; empty where it did not run.
    """

    cfg: TrainPipelineConfig
    craft: CraftConfig
    accelerator: Accelerator
    dataset: Dataset
    policy: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    preprocessor: PolicyProcessorPipeline
    postprocessor: PolicyProcessorPipeline
    loader: DataLoader[Any]
    held_out_loader: DataLoader[Any] | None
    sample_weighter: Any
    step: int
    cache: Cache | None = None
    resumed_random_state: dict[str, torch.Tensor] | None = None
    normalization: list[FeatureRow] = field(default_factory=list)

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
        CacheError: If the anchor cache is damaged, or not for this run.
    """
    _set_determinism(cfg, accelerator)
    dataset, held_out = make_datasets(cfg, accelerator)
    policy, cache, pipelines, rows = _policy_and_anchors(cfg, craft, dataset, accelerator)
    optimizer, scheduler = _compat.make_optimizer_and_scheduler(cfg, policy)
    weighter = _sample_weighter(cfg, policy, accelerator)
    is_fsdp = accelerator.distributed_type == _compat.DistributedType.FSDP
    step, random_state = 0, None
    if cfg.resume:
        step, optimizer, scheduler = _compat.load_training_state(
            cfg.checkpoint_path, optimizer, scheduler, load_optimizer=not is_fsdp
        )
        random_state = _compat.serialize_rng_state()
    loader, place = make_loader(cfg, dataset, accelerator, step)
    held_out_loader = make_held_out_loader(cfg, dataset, held_out, accelerator)
    accelerator.wait_for_everyone()
    # Whether None passes through as None is up to accelerate, and so it is in `lerobot-train`.
    policy, optimizer, loader, scheduler, held_out_loader = accelerator.prepare(
        policy, optimizer, loader, scheduler, held_out_loader
    )
    if cfg.resume and is_fsdp:
        _compat.load_fsdp_optimizer_state(policy, optimizer, cfg.checkpoint_path)
    if craft.enabled and place is not None and isinstance(loader, DataLoaderShard):
        # accelerate counts epochs from 0 in every process and overrules the sampler's own count with that.
        loader.iteration = place["epoch"]
    return Run(
        cfg=cfg,
        craft=craft,
        accelerator=accelerator,
        dataset=dataset,
        policy=policy,
        optimizer=optimizer,
        scheduler=scheduler,
        preprocessor=pipelines[0],
        postprocessor=pipelines[1],
        loader=loader,
        held_out_loader=held_out_loader,
        sample_weighter=weighter,
        step=step,
        cache=cache,
        resumed_random_state=random_state if craft.enabled and place is not None and place["start_index"] > 0 else None,
        normalization=rows,
    )


def _set_determinism(cfg: TrainPipelineConfig, accelerator: Accelerator) -> None:
    if cfg.seed is not None:
        _compat.set_seed(cfg.seed, accelerator=accelerator)
    if cfg.cudnn_deterministic:
        torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = not cfg.cudnn_deterministic
    torch.backends.cuda.matmul.allow_tf32 = True


def _policy_and_anchors(
    cfg: TrainPipelineConfig, craft: CraftConfig, dataset: Dataset, accelerator: Accelerator
) -> tuple[nn.Module, Cache | None, tuple[PolicyProcessorPipeline, PolicyProcessorPipeline], list[FeatureRow]]:
    """Return the policy, the anchor cache it was checked against, its processors, and what their guard found."""
    policy = _policy(cfg, dataset)
    if craft.enabled and cfg.policy.pretrained_path is not None:
        check_loaded(policy, cfg.policy.pretrained_path)
    needs_cache = craft.enabled and craft.mode.needs_anchors and not (cfg.resume and craft.mode is RetentionMode.EWC)
    if needs_cache:
        _anchors.check_policy(policy, craft)
    # The weights and statistics of a resumed run are the student's; the cache was checked when it began.
    teacher = identify_policy(policy) if needs_cache and not cfg.resume else None
    policy = _with_adapters(cfg, policy)
    accelerator.wait_for_everyone()
    before, after = make_processors(cfg, craft, policy, dataset, accelerator.device)
    cache = None
    if needs_cache:
        processor = identify_processor(before) if not cfg.resume else None
        cache = _anchors.open_anchors(cfg, craft, accelerator)
        tap = _anchors.student_tap(policy, craft, cache) if craft.mode.has_tap else None
        _anchors.check_anchors(cache, cfg, craft, teacher=teacher, processor=processor, tap=tap)
        if tap is not None and craft.freeze_behind_tap:
            # Before the optimizer and the wrapper for several processes: both look at what trains.
            freeze_behind_tap(tap)
    if craft.enabled and craft.freeze is not None:
        _freeze(policy, craft.freeze)
    rows = []
    if keeps_teacher(craft) and not cfg.resume:
        statistics = {cfg.rename_map.get(key, key): value for key, value in dataset.meta.stats.items()}
        rows = guard(before, after, statistics)
    return policy, cache, (before, after), rows


def _policy(cfg: TrainPipelineConfig, dataset: Dataset) -> nn.Module:
    logger.info("Creating policy")
    try:
        policy: nn.Module = _compat.make_policy(cfg=cfg.policy, ds_meta=dataset.meta, rename_map=cfg.rename_map)
    except NOT_FOUND as error:
        raise UsageError(
            f"`--policy.path={cfg.policy.pretrained_path}` could not be loaded: expected a folder or a Hub repository "
            f"with `config.json` and `model.safetensors`. ({type(error).__name__}: {error})"
        ) from error
    return policy


def _with_adapters(cfg: TrainPipelineConfig, policy: nn.Module) -> nn.Module:
    if cfg.peft is None or isinstance(policy, PeftModel):
        return policy
    inner: Any = policy
    wrapped: nn.Module = inner.wrap_with_peft(peft_cli_overrides=dataclasses.asdict(cfg.peft))
    return wrapped


def _freeze(policy: nn.Module, pattern: str) -> None:
    """Keep the parameters whose name holds `pattern` from training.

    Raises:
        UsageError: If it holds for none of those that train, or for all.
    """
    training = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
    frozen = [name for name in training if re.search(pattern, name)]
    if not frozen or len(frozen) == len(training):
        names = sorted({".".join(name.split(".")[:2]) for name in training})
        raise UsageError(
            f"`--craft.freeze={pattern}` holds for {'all' if frozen else 'none'} of the {len(training)} parameters "
            f"that train: expected a part of the names of some. They begin with {', '.join(names)}."
        )
    for name in frozen:
        training[name].requires_grad = False
    logger.info("Frozen: %d of %d parameter tensors (`%s`)", len(frozen), len(training), pattern)


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
