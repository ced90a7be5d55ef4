# SPDX-License-Identifier: Apache-2.0
"""One optimizer step: task loss, retention, clipping, update; draws no batch and logs nothing."""

import math
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lerobot_craft.constraint import RetentionConstraint
from lerobot_craft.errors import RunError
from lerobot_craft.step_report import StepReport
from lerobot_craft.training import _compat
from lerobot_craft.training._build import Run
from lerobot_craft.training._one_pass import OnePass


class StepResult(NamedTuple):
    """What one step gives the log.

    Attributes:
        loss: The task loss of this process.
        grad_norm: Norm of the gradient the optimizer saw, before clipping.
        lr: Learning rate of the first parameter group, after the schedule moved.
        seconds: Time the step took.
        outputs: The policy's own numbers.
        report: What retention did; None where it is off.
    """

    loss: float
    grad_norm: float
    lr: float
    seconds: float
    outputs: dict[str, Any]
    report: StepReport | None


def train_step(
    run: Run,
    batch: dict[str, Any],
    constraint: RetentionConstraint | None,
    one_pass: OnePass | None = None,
    *,
    step: int,
    statistics: bool,
) -> StepResult:
    """Do one step.

    1. The task loss is computed and backpropagated.
    2. The constraint adds what retention asks for to the gradient; in one pass with the first where that is the same.
    3. The gradient is clipped, the optimizer and the schedule step.
    4. The next step's anchors are prepared while the device is still at work.

    Args:
        run: The run.
        batch: A preprocessed batch of the new task.
        constraint: Retention; None is plain training.
        one_pass: Task and anchors in one pass; None where that cannot be.
        step: The number of this step, counted from 1.
        statistics: Whether the log wants dot product and cosine.

    Raises:
        RunError: If, under CRaFT, the task's loss or gradient is not finite. Plain training goes on, as LeRobot's does.
    """
    start = time.perf_counter()
    run.policy.train()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    joined = None if one_pass is None else one_pass.losses(step, batch, statistics=statistics)
    report: StepReport | None = None
    outputs: dict[str, Any] = {}
    if joined is not None:
        loss, report = joined.task, joined.report
        run.accelerator.backward(joined.total)
    else:
        loss, outputs = _task_loss(run, batch)
        run.accelerator.backward(loss)
    if constraint is not None and joined is None:
        if run.accelerator.scaler is not None:
            run.accelerator.unscale_gradients(run.optimizer)
        report = constraint.apply_(step, statistics=statistics)
    grad_norm = _clip(run, unscaled=constraint is not None and run.accelerator.scaler is not None)
    run.optimizer.step()
    run.optimizer.zero_grad()
    if run.scheduler is not None:
        run.scheduler.step()
    model = run.accelerator.unwrap_model(run.policy, keep_fp32_wrapper=True)
    if _compat.has_method(model, "update"):
        model.update()
    if constraint is not None:
        # Reading results waits for the device; until then the host has time for the next step's anchors.
        constraint.look_ahead(step + 1)
    result = StepResult(
        loss=loss.item(),
        grad_norm=grad_norm.item(),
        lr=run.optimizer.param_groups[0]["lr"],
        seconds=time.perf_counter() - start,
        outputs=outputs,
        report=report,
    )
    if constraint is not None:
        _check_finite(run, result, step)
    return result


def _task_loss(run: Run, batch: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    weights, weight_statistics = None, {}
    if run.sample_weighter is not None:
        weights, weight_statistics = run.sample_weighter.compute_batch_weights(batch)
    with run.accelerator.autocast():
        if weights is None:
            loss, outputs = run.policy.forward(batch)
            return loss, outputs or {}
        per_sample, outputs = run.policy.forward(batch, reduction="none")
        # Dividing by the weights' sum keeps the scale of the gradient where some weights are 0.
        loss = (per_sample * weights).sum() / (weights.sum() + 1e-6)
    named = {f"sample_weight_{name}": value for name, value in weight_statistics.items()}
    return loss, {**(outputs or {}), **named}


def _clip(run: Run, *, unscaled: bool) -> Tensor:
    maximum = run.cfg.optimizer.grad_clip_norm
    # accelerate's clipping would undo the loss scale once more.
    if maximum > 0 and not unscaled:
        norm: Tensor = run.accelerator.clip_grad_norm_(run.policy.parameters(), maximum)
        return norm
    bound = maximum if maximum > 0 else math.inf
    return torch.nn.utils.clip_grad_norm_(run.policy.parameters(), bound, error_if_nonfinite=False)


def _check_finite(run: Run, result: StepResult, step: int) -> None:
    # With a loss scaler an infinite gradient is how it finds its scale; the loss tells then. Without one the norm is
    # the same in every process, so all of them stop together.
    value = result.loss if run.accelerator.scaler is not None else result.grad_norm
    if math.isfinite(value) and (math.isfinite(result.loss) or run.accelerator.num_processes > 1):
        return
    raise RunError(
        f"The task loss is {result.loss} with gradient norm {result.grad_norm} at step {step}: training cannot go on. "
        "Look for NaN in the dataset or a learning rate that is too high (`--policy.optimizer_lr`). The checkpoints "
        f"under {run.cfg.output_dir} are from before this step; resume from `checkpoints/last`."
    )
