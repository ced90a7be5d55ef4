# SPDX-License-Identifier: Apache-2.0
"""Evaluation during training: the loss on held-out episodes, and rollouts in the environment; judges nothing."""

import logging
from typing import Any

import torch

from lerobot_craft.training import _compat
from lerobot_craft.training._build import Run
from lerobot_craft.training._compat import AverageMeter, MetricsTracker
from lerobot_craft.training._log import RunLog

logger = logging.getLogger(__name__)


def as_float_images(run: Run, batch: dict[str, Any]) -> dict[str, Any]:
    """Return `batch` with 8-bit images as numbers in [0, 1], which is what preprocessors expect."""
    for key in run.dataset.meta.camera_keys:
        if key in batch and batch[key].dtype == torch.uint8:
            batch[key] = batch[key].to(dtype=torch.float32) / 255.0
    return batch


def held_out_loss(run: Run, log: RunLog) -> float:
    """Return the task loss on held-out episodes, averaged over processes; every process must call it."""
    if run.held_out_loader is None:
        raise RuntimeError("`held_out_loss` was called without held-out episodes.")
    run.policy.eval()
    total, batches = 0.0, 0
    with torch.no_grad(), run.accelerator.autocast():
        for batch in run.held_out_loader:
            loss, _ = run.policy.forward(run.preprocessor(as_float_images(run, batch)))
            total += loss.item()
            batches += 1
    mean = torch.tensor(total / max(batches, 1), device=run.accelerator.device)
    value: float = run.accelerator.reduce(mean, reduction="mean").item()
    run.policy.train()
    if run.is_main:
        logger.info("step %d: eval_loss=%.4f", run.step, value)
        log.event("held_out", {"eval_loss": value})
    return value


def rollouts(run: Run, log: RunLog, env_processors: tuple[Any, Any]) -> None:
    """Run the policy in the configured environment and log rewards and success; for the main process."""
    cfg = run.cfg
    identifier = _compat.get_step_identifier(run.step, cfg.steps)
    logger.info("Eval policy at step %d", run.step)
    envs = _compat.make_env(cfg.env, n_envs=cfg.eval.batch_size, use_async_envs=cfg.eval.use_async_envs)
    try:
        with torch.no_grad(), run.accelerator.autocast():
            info = _compat.eval_policy_all(
                envs=envs,
                policy=run.model,
                env_preprocessor=env_processors[0],
                env_postprocessor=env_processors[1],
                preprocessor=run.preprocessor,
                postprocessor=run.postprocessor,
                n_episodes=cfg.eval.n_episodes,
                videos_dir=cfg.output_dir / "eval" / f"videos_step_{identifier}",
                max_episodes_rendered=4,
                start_seed=cfg.seed,
                max_parallel_tasks=cfg.env.max_parallel_tasks,
            )
    finally:
        _compat.close_envs(envs)
    _log_rollouts(run, log, info)


def _log_rollouts(run: Run, log: RunLog, info: dict[str, Any]) -> None:
    for suite, numbers in info.items():
        logger.info("Suite %s aggregated: %s", suite, numbers)
    overall = info["overall"]
    meters = {
        "avg_sum_reward": AverageMeter("∑rwrd", ":.3f"),
        "pc_success": AverageMeter("success", ":.1f"),
        "eval_s": AverageMeter("eval_s", ":.3f"),
    }
    dataset = run.dataset
    tracker = MetricsTracker(
        run.cfg.batch_size,
        dataset.num_frames,
        dataset.num_episodes,
        meters,
        initial_step=run.step,
        accelerator=run.accelerator,
    )
    tracker.eval_s = overall.pop("eval_s")
    tracker.avg_sum_reward = overall.pop("avg_sum_reward")
    tracker.pc_success = overall.pop("pc_success")
    log.event("rollouts", tracker.to_dict())
    if overall.get("video_paths"):
        log.video(overall["video_paths"][0])
