# SPDX-License-Identifier: Apache-2.0
"""The training loop: batch, step, log, evaluate, save; builds nothing and knows no retention mode."""

import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

import torch
from tqdm import tqdm

from lerobot_craft.constraint import RetentionConstraint
from lerobot_craft.taps import eval_mode
from lerobot_craft.training import _checkpoint, _compat, _evaluate
from lerobot_craft.training._build import Run
from lerobot_craft.training._log import RunLog
from lerobot_craft.training._one_pass import OnePass
from lerobot_craft.training._retention import Retention
from lerobot_craft.training._step import train_step

logger = logging.getLogger(__name__)


class Interrupt:
    """Turns the first Ctrl-C, or a termination, into a flag that the loop reads between steps; the second one stops."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        # Python lets only the main thread install handlers; a notebook or a test may run the loop elsewhere.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        logger.warning("Interrupted: the step is finished and a checkpoint written. Once more stops at once.")


@dataclass
class Loop:
    """One run's loop.

    Attributes:
        run: What is trained.
        log: Where its numbers go.
        teacher: The policy the run started from.
        constraint: Retention; None is plain training.
        retention: What is retained; None is plain training.
        one_pass: Task and anchors in one pass; None where that cannot be.
        env_processors: LeRobot's processors of the evaluation environment, if there is one.
    """

    run: Run
    log: RunLog
    teacher: str | None
    constraint: RetentionConstraint | None = None
    retention: Retention | None = None
    one_pass: OnePass | None = None
    env_processors: tuple[Any, Any] | None = None
    _recent_losses: list[float] = field(default_factory=list)
    _saved_at: int | None = None

    def go(self) -> bool:
        """Train to the last step.

        Returns:
            False if the run was interrupted before.
        """
        run = self.run
        progress = tqdm(
            total=run.cfg.steps - run.step,
            desc="Training",
            unit="step",
            disable=_compat.inside_slurm() or not run.is_main,
            leave=True,
        )
        batches = self._batches()
        with Interrupt() as interrupt, progress:
            while run.step < run.cfg.steps:
                self._one_step(batches)
                progress.update(1)
                if self._agreed(interrupt.asked):
                    self._save_interrupted()
                    return False
        return True

    def _one_step(self, batches: Iterator[dict[str, Any]]) -> None:
        run, cfg = self.run, self.run.cfg
        start = time.perf_counter()
        batch = next(batches)
        data_seconds = time.perf_counter() - start
        number = run.step + 1
        statistics = self._statistics_due(number)
        result = train_step(run, batch, self.constraint, self.one_pass, step=number, statistics=statistics)
        run.step = number
        self._recent_losses.append(result.loss)
        self.log.record(result, data_seconds)
        if statistics:
            norms = None if self.retention is None else self.retention.feature_norms
            self.log.keep_statistics(result, {} if norms is None else norms())
        if cfg.log_freq > 0 and run.step % cfg.log_freq == 0:
            self.log.write(result)
        task_loss = None
        if cfg.eval_steps > 0 and run.held_out_loader is not None and run.step % cfg.eval_steps == 0:
            task_loss = _evaluate.held_out_loss(run, self.log)
        if cfg.save_checkpoint and _compat.should_save_checkpoint(run.step, cfg.save_freq, cfg.steps):
            self._save(task_loss)
        if cfg.env is not None and cfg.env_eval_freq > 0 and run.step % cfg.env_eval_freq == 0:
            if run.is_main and self.env_processors is not None:
                _evaluate.rollouts(run, self.log, self.env_processors)
            run.accelerator.wait_for_everyone()

    def _batches(self) -> Iterator[dict[str, Any]]:
        run = self.run
        for batch in _compat.cycle(run.loader):
            if run.resumed_random_state is not None:
                _compat.deserialize_rng_state(run.resumed_random_state)
                run.resumed_random_state = None
            yield run.preprocessor(_evaluate.as_float_images(run, batch))

    def _statistics_due(self, number: int) -> bool:
        """Whether this step's retention is the last one before the next line of the log."""
        frequency, every = self.run.craft.retention_freq, self.run.cfg.log_freq
        if self.constraint is None or every <= 0 or number % frequency != 0:
            return False
        next_line: int = math.ceil(number / every) * every
        return next_line < number + frequency

    def _save(self, task_loss: float | None) -> None:
        run = self.run
        if run.is_main:
            logger.info("Checkpoint policy after step %d", run.step)
        folder = _checkpoint.save(run, self.constraint, self.log.state_dict(), self.teacher, self.retention)
        self._saved_at = run.step
        verdict = self._judge(task_loss)
        if run.is_main:
            if verdict is not None:
                _checkpoint.keep_if_best(folder, verdict)
                self.log.event("checkpoint", {f"craft/{name}": value for name, value in verdict.items()}, "train")
            if run.cfg.save_checkpoint_to_hub:
                _compat.push_checkpoint_to_hub(folder, run.cfg.policy.repo_id, private=run.cfg.policy.private)
            self.log.checkpoint(folder)
        run.accelerator.wait_for_everyone()

    def _judge(self, task_loss: float | None) -> dict[str, Any] | None:
        """Return the two numbers a checkpoint is judged by; every process must call it."""
        if self.retention is None or self.constraint is None or self.retention.held_out is None:
            return None
        run = self.run
        recent = self._recent_losses or [math.nan]
        self._recent_losses = []
        own = task_loss if task_loss is not None else sum(recent) / len(recent)
        with eval_mode(run.model), torch.no_grad():
            drift = self.retention.held_out()
        numbers = torch.tensor([own, drift], dtype=torch.float64, device=run.accelerator.device)
        loss, drift = run.accelerator.reduce(numbers, reduction="mean").tolist()
        if self.constraint.budget.reference is None:
            self.constraint.calibrate()
        budget = self.constraint.budget.bound(run.step)
        return {
            "step": run.step,
            "task_loss": loss,
            "task_loss_is": "held-out episodes" if task_loss is not None else "mean over the steps since the last save",
            "held_out_retention_loss": drift,
            "budget": budget,
            "within_budget": drift <= budget,
        }

    def _agreed(self, asked: bool) -> bool:
        run = self.run
        if run.accelerator.num_processes == 1:
            return asked
        # A collective call: only where all processes wait for each other anyway.
        if run.cfg.log_freq <= 0 or run.step % run.cfg.log_freq != 0:
            return False
        flag = torch.tensor(float(asked), device=run.accelerator.device)
        return bool(run.accelerator.reduce(flag, reduction="sum").item() > 0)

    def _save_interrupted(self) -> None:
        run = self.run
        if not run.cfg.save_checkpoint:
            logger.warning("Stopped at step %d; `--save_checkpoint=false`, so nothing was written.", run.step)
            return
        if self._saved_at != run.step:
            self._save(None)
        if run.is_main:
            folder = run.cfg.output_dir / _compat.CHECKPOINTS_DIR / _compat.LAST_CHECKPOINT_LINK
            path = folder / _compat.PRETRAINED_MODEL_DIR / _compat.TRAIN_CONFIG_NAME
            logger.warning(
                "Stopped at step %d. Go on with: lerobot-craft train --resume=true --config_path=%s", run.step, path
            )
