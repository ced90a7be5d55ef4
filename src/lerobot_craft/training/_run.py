# SPDX-License-Identifier: Apache-2.0
"""`train`: one run from its settings to its last checkpoint; the order of things, and nothing else."""

import logging
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lerobot_craft.constraint import RetentionConstraint
from lerobot_craft.errors import UsageError
from lerobot_craft.training import _checkpoint, _compat, _normalization, _startup
from lerobot_craft.training._build import Run, build
from lerobot_craft.training._compat import Accelerator, TrainPipelineConfig
from lerobot_craft.training._config import CraftTrainConfig, read_teacher
from lerobot_craft.training._log import RunLog
from lerobot_craft.training._loop import Loop
from lerobot_craft.training._one_pass import one_pass
from lerobot_craft.training._record import write_record
from lerobot_craft.training._retention import Retention, build_retention

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

# Where torch's own scaler starts.
FLOAT16_LOSS_SCALE = 65536.0

INTERRUPTED = 130


def train(config: CraftTrainConfig, words: Sequence[str] = ()) -> int:
    """Train a policy under a retention budget, or plainly where `craft.enabled` is false.

    Args:
        config: Validated settings.
        words: The words they were parsed from, for the run's record.

    Returns:
        0 when the last step was reached, 130 when the run was interrupted and saved.

    Raises:
        CraftError: With a message for the user, whatever it is that cannot work.
    """
    cfg, craft = config.to_lerobot(), config.craft
    accelerator = _compat.make_accelerator(cfg)
    _compat.init_logging(accelerator=accelerator)
    _check_processes(config, accelerator)
    try:
        run = build(cfg, craft, accelerator)
        loop = _make_loop(run, words)
        finished = loop.go()
        loop.log.close()
        if run.is_main:
            logger.info("End of training" if finished else "Training was interrupted")
        if finished:
            _push(run)
        accelerator.wait_for_everyone()
    finally:
        if craft.dry_run and accelerator.is_main_process:
            shutil.rmtree(cfg.output_dir.parent, ignore_errors=True)
        accelerator.end_training()
    return 0 if finished else INTERRUPTED


def _check_processes(config: CraftTrainConfig, accelerator: Accelerator) -> None:
    kind = accelerator.distributed_type
    if accelerator.num_processes == 1 and "MASTER_PORT" in os.environ and "WORLD_SIZE" not in os.environ:
        # accelerate sets a port where several processes were asked for, and on CPUs without MPI starts one.
        logger.warning(
            "Several processes were asked for and this one is alone: `accelerate launch --cpu` starts one process "
            "unless MPI is set up. Use `torchrun --nproc_per_node=N -m lerobot_craft.cli train ...` instead."
        )
    if config.craft.enabled and kind in (_compat.DistributedType.FSDP, _compat.DistributedType.DEEPSPEED):
        raise UsageError(
            f"`accelerate` was configured for {kind.value}, whose sharded gradients the constrained step does not "
            "cover: use its multi-GPU mode (DDP), or `--craft.enabled=false`."
        )


def _make_loop(run: Run, words: Sequence[str]) -> Loop:
    teacher = _teacher(run.cfg)
    retention, constraint = None, None
    if run.craft.enabled:
        retention = build_retention(run, _checkpoint.load_reference(run))
    if retention is not None:
        if run.accelerator.scaler is not None and run.craft.loss_scale == 1.0:
            # Gradients of anchors underflow in float16 as those of the task do.
            run.craft.loss_scale = FLOAT16_LOSS_SCALE
        constraint = RetentionConstraint(run.model, retention.term, run.craft, total_steps=run.cfg.steps)
    log = _make_log(run)
    if run.cfg.resume and run.craft.enabled:
        log.load_state_dict(_checkpoint.load(run, constraint))
    env_processors: tuple[Any, Any] | None = None
    if run.cfg.env is not None and run.is_main:
        env_processors = _compat.make_env_pre_post_processors(env_cfg=run.cfg.env, policy_cfg=run.cfg.policy)
    if run.is_main:
        _announce(run, retention)
        if not run.cfg.resume:
            write_record(run, retention, teacher, words)
    together = one_pass(run, constraint, retention)
    if together is not None and run.is_main:
        logger.info("Anchors are further rows of the task batch: one pass for both.")
    return Loop(run, log, teacher, constraint, retention, together, env_processors)


def _make_log(run: Run) -> RunLog:
    # What a logger draws at its start, for the name of a run perhaps, must not move the training.
    state = _compat.serialize_rng_state()
    log = RunLog(run)
    _compat.deserialize_rng_state(state)
    return log


def _teacher(cfg: TrainPipelineConfig) -> str | None:
    if cfg.resume:
        return read_teacher(cfg.checkpoint_path / _compat.PRETRAINED_MODEL_DIR)
    return None if cfg.policy.pretrained_path is None else str(cfg.policy.pretrained_path)


def _announce(run: Run, retention: Retention | None) -> None:
    cfg, processes = run.cfg, run.accelerator.num_processes
    logger.info("Output dir: %s", cfg.output_dir)
    if retention is not None:
        logger.info("\n%s", _startup.settings_block(run, retention.anchors, retention.source))
    elif run.craft.enabled:
        logger.info("CRaFT: enabled, `retention_mode=none`: the teacher's statistics are kept and nothing is retained.")
    else:
        logger.info("CRaFT: disabled. This is plain `lerobot-train`.")
    if run.normalization:
        logger.info("%s", _normalization.table(run.normalization))
    behind = None if retention is None else retention.behind_tap
    logger.info("\n%s", _startup.parameter_table(run.model, behind))
    separate = retention is not None and run.craft.weighs_gradients
    logger.info("%s", _startup.memory_estimate(run.model, run.optimizer, separate_gradient=separate))
    logger.info(
        "%d steps over %d frames of %d episodes, effective batch size %d x %d = %d, on %s",
        *(cfg.steps, run.dataset.num_frames, run.dataset.num_episodes),
        *(cfg.batch_size, processes, cfg.batch_size * processes, run.accelerator.device),
    )


def _push(run: Run) -> None:
    """Push the result to the Hub where the policy's settings say so."""
    is_fsdp = run.accelerator.distributed_type == _compat.DistributedType.FSDP
    weights: dict[str, Tensor] | None = run.accelerator.get_state_dict(run.policy) if is_fsdp else None
    policy_cfg = run.cfg.policy
    if not (run.is_main and policy_cfg.push_to_hub):
        return
    model: Any = run.model
    if policy_cfg.use_peft:
        model.push_model_to_hub(run.cfg, peft_model=model, dataset_meta=run.dataset.meta)
    else:
        model.push_model_to_hub(run.cfg, state_dict=weights, dataset_meta=run.dataset.meta)
    run.preprocessor.push_to_hub(policy_cfg.repo_id)
    run.postprocessor.push_to_hub(policy_cfg.repo_id)
