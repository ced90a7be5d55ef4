# SPDX-License-Identifier: Apache-2.0
"""Numbers of a run to the terminal, `metrics.jsonl`, Weights & Biases and Trackio; computes none of them.

The terminal shows LeRobot's line for plain training and the step line of CRaFT otherwise. All numbers are Python
floats: LeRobot's tracker drops tensors and booleans without a word.
"""

import importlib
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lerobot_craft.errors import UsageError
from lerobot_craft.training import _compat
from lerobot_craft.training._build import Run
from lerobot_craft.training._compat import AverageMeter, MetricsTracker
from lerobot_craft.training._step import StepResult

logger = logging.getLogger(__name__)

METRICS_NAME = "metrics.jsonl"
# What differs between two runs of the same settings, and so is left out of the saved history.
TIMINGS = ("update_s", "dataloading_s", "samples_per_s", "gpu_mem_gb")
# What only a step with retention can measure.
GRADIENT_STATISTICS = ("dot", "cosine", "task_norm", "retention_norm", "conflict", "bounded")


class RunLog:
    """The log of one run.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.history: list[dict[str, Any]] = []
        self._path = Path(run.cfg.output_dir) / METRICS_NAME
        self._wandb = _make_wandb(run)
        self._trackio = _make_trackio(run)
        self.tracker = _make_tracker(run)
        self._retention: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs so that its lines are those of a run without interruption."""
        kept = {name: meter for name, meter in self.tracker.metrics.items() if name not in TIMINGS}
        meters = {name: [m.val, m.avg, m.sum, m.count] for name, m in kept.items()}
        return {"history": self.history, "statistics": _without_nan(self._retention), "meters": meters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned, and forget what `metrics.jsonl` holds from steps after it."""
        self.history = state["history"]
        self._retention = {name: math.nan if value is None else value for name, value in state["statistics"].items()}
        self.tracker.update_metrics(dict.fromkeys(state["meters"], 0.0))
        for name, (val, avg, total, count) in state["meters"].items():
            meter = self.tracker.metrics[name]
            meter.val, meter.avg, meter.sum, meter.count = val, avg, total, count
        self._forget_after_checkpoint()

    def _forget_after_checkpoint(self) -> None:
        if not self._run.is_main or not self._path.is_file():
            return
        lines = self._path.read_text().splitlines()
        # The last line may be cut short by the kill this run resumes from.
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        kept = [json.dumps(row) + "\n" for row in rows if row["step"] <= self._run.step]
        partial = self._path.with_suffix(".partial")
        partial.write_text("".join(kept))
        partial.replace(self._path)

    def record(self, result: StepResult, data_seconds: float) -> None:
        """Take in one step."""
        tracker = self.tracker
        tracker.dataloading_s = data_seconds
        tracker.loss = result.loss
        tracker.grad_norm = result.grad_norm
        tracker.lr = result.lr
        tracker.update_s = result.seconds
        if torch.cuda.is_available():
            tracker.gpu_mem_gb = torch.cuda.max_memory_allocated() / 1024**3
        if result.outputs:
            tracker.update_metrics(result.outputs)
        tracker.step()

    def keep_statistics(self, result: StepResult, feature_norms: Mapping[str, float]) -> None:
        """Read what retention measured in a step whose statistics are due in the next line."""
        if result.report is not None:
            self._retention = {**result.report.floats(), **feature_norms}

    def write(self, result: StepResult) -> None:
        """Write the line of the present step; every process must call it."""
        run, tracker = self._run, self.tracker
        tracker.reduce_across_ranks()
        if run.is_main:
            seconds = tracker.update_s.avg + tracker.dataloading_s.avg
            if seconds > 0:
                tracker.samples_per_s = run.cfg.batch_size * run.accelerator.num_processes / seconds
        retention = self._present_retention(result)
        row = {"step": run.step, **tracker.to_dict(), **{f"craft/{name}": value for name, value in retention.items()}}
        del row["steps"]
        row = _without_nan(row)
        self.history.append({k: v for k, v in row.items() if k not in TIMINGS})
        if run.is_main:
            logger.info(step_line(run, row) if retention else str(tracker))
            self._append(row)
            self.send(self._with_weighting({name: value for name, value in row.items() if value is not None}))
        tracker.reset_averages()

    def event(self, name: str, row: dict[str, Any], mode: str = "eval") -> None:
        """Record something that is no step, an evaluation for instance; for the main process."""
        numbers = {key: value for key, value in row.items() if isinstance(value, int | float | str)}
        self._append(_without_nan({"step": self._run.step, "event": name, **numbers}))
        self.send(numbers, mode)

    def send(self, row: dict[str, Any], mode: str = "train") -> None:
        """Send a row to the loggers that were asked for."""
        if self._wandb is not None:
            self._wandb.log_dict(row, self._run.step, mode=mode)
        if self._trackio is not None:
            self._trackio.log({f"{mode}/{name}": value for name, value in row.items()}, step=self._run.step)

    def video(self, path: str) -> None:
        """Send a video of an evaluation."""
        if self._wandb is not None:
            self._wandb.log_video(path, self._run.step, mode="eval")

    def checkpoint(self, folder: Path) -> None:
        """Send a checkpoint where artifacts are kept."""
        if self._wandb is not None:
            self._wandb.log_policy(folder)

    def close(self) -> None:
        """Finish what needs finishing."""
        if self._trackio is not None:
            self._trackio.finish()

    def _present_retention(self, result: StepResult) -> dict[str, float]:
        if result.report is None:
            return {}
        if result.report.retained and self._retention:
            return self._retention
        # Between retention steps λ and ε are read anew, and the gradients' statistics are those of the last one.
        fresh = result.report.floats()
        kept = {
            name: value for name, value in self._retention.items() if name in GRADIENT_STATISTICS or name not in fresh
        }
        return {**fresh, **kept}

    def _with_weighting(self, row: dict[str, Any]) -> dict[str, Any]:
        if self._run.sample_weighter is None:
            return row
        statistics = self._run.sample_weighter.get_stats()
        return {**row, **{f"sample_weighting/{name}": value for name, value in statistics.items()}}

    def _append(self, row: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def step_line(run: Run, row: dict[str, Any]) -> str:
    """Return the line of one step under CRaFT."""
    conflict = "–" if row["craft/cosine"] is None else "✓" if row["craft/conflict"] else "✗"
    return " | ".join(
        [
            f"Step {run.step}/{run.cfg.steps}",
            f"loss={_number(row['loss'])}",
            f"grdn={_number(row['grad_norm'])}",
            f"lr={row['lr']:.1e}",
            f"updt_s={row['update_s']:.3f}",
            f"data_s={row['dataloading_s']:.3f}",
            f"mode={run.craft.retention_mode}",
            f"L_ret={_number(row['craft/retention_loss'])}",
            f"λ={_number(row['craft/multiplier'])}",
            f"ε={_number(row['craft/epsilon'])}",
            f"conflict={conflict}",
            f"dot={_number(row['craft/dot'])}",
            f"cos={_number(row['craft/cosine'])}",
        ]
    )


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.6f}"


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """Return `row` with None for what was not measured: JSON knows no NaN."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _make_tracker(run: Run) -> MetricsTracker:
    meters = {
        "loss": AverageMeter("loss", ":.3f", reduction="mean"),
        "grad_norm": AverageMeter("grdn", ":.3f"),
        "lr": AverageMeter("lr", ":0.1e"),
        # The slowest process is the one the others wait for.
        "update_s": AverageMeter("updt_s", ":.3f", reduction="max"),
        "dataloading_s": AverageMeter("data_s", ":.3f", reduction="max"),
        "samples_per_s": AverageMeter("smp/s", ":.0f"),
    }
    if torch.cuda.is_available():
        meters["gpu_mem_gb"] = AverageMeter("mem_gb", ":.2f", reduction="max")
    dataset = run.dataset
    return MetricsTracker(
        run.cfg.batch_size,
        dataset.num_frames,
        dataset.num_episodes,
        meters,
        initial_step=run.step,
        accelerator=run.accelerator,
    )


def _make_wandb(run: Run) -> Any:  # noqa: ANN401 (untyped in LeRobot)
    if not (run.cfg.wandb.enable and run.cfg.wandb.project and run.is_main):
        return None
    wandb = _compat.WandBLogger(run.cfg)
    if run.craft.enabled:
        importlib.import_module("wandb").config.update({"craft": run.craft.to_dict()}, allow_val_change=True)
    return wandb


def _make_trackio(run: Run) -> Any:  # noqa: ANN401 (an optional package)
    if run.craft.trackio_project is None or not run.is_main:
        return None
    try:
        trackio = importlib.import_module("trackio")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"`--craft.trackio_project={run.craft.trackio_project}` needs the package `trackio`: `pip install trackio`."
        ) from error
    trackio.init(project=run.craft.trackio_project, name=run.cfg.job_name, config={"craft": run.craft.to_dict()})
    return trackio
