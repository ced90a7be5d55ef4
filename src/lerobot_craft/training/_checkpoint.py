# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: written whole or not at all, readable by stock LeRobot, with our state beside LeRobot's.

    checkpoints/
      000020/pretrained_model/  as LeRobot writes it, plus craft_config.json
      000020/training_state/    as LeRobot writes it, plus craft_state.json
      last -> 000020            moves only once 000020 is whole
      best -> 000020, best.json the best so far within budget, and its numbers

Decides neither when to save nor which checkpoint is best.
"""

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lerobot_craft.constraint import RetentionConstraint
from lerobot_craft.errors import RunError, StateError
from lerobot_craft.training import _compat
from lerobot_craft.training._build import Run
from lerobot_craft.training._config import write_craft_settings
from lerobot_craft.training._retention import Retention

STATE_NAME = "craft_state.json"
REFERENCE_NAME = "craft_reference.safetensors"
INCOMPLETE = ".incomplete-"
BEST_LINK = "best"
BEST_CARD = "best.json"


def save(
    run: Run,
    constraint: RetentionConstraint | None,
    log: dict[str, Any],
    teacher: str | None,
    retention: Retention | None,
) -> Path:
    """Write the checkpoint of the present step; collective under FSDP, otherwise for the main process alone.

    Args:
        run: The run.
        constraint: Its state is saved; None where nothing is retained.
        log: State of the run's log.
        teacher: The policy the run started from.
        retention: Its reference is saved; None where nothing is retained.

    Returns:
        The checkpoint's folder.

    Raises:
        RunError: If it could not be written; nothing half-written is left, and `last` has not moved.
    """
    weights, moments = None, None
    if run.accelerator.distributed_type == _compat.DistributedType.FSDP:
        weights, moments = _compat.gather_fsdp_state_dicts(run.policy, run.optimizer)
    final: Path = _compat.get_step_checkpoint_dir(run.cfg.output_dir, run.cfg.steps, run.step)
    if not run.is_main:
        return final
    remove_incomplete(final.parent)
    partial = final.with_name(f"{INCOMPLETE}{final.name}")
    try:
        _compat.save_checkpoint(
            checkpoint_dir=partial,
            step=run.step,
            cfg=run.cfg,
            policy=run.model,
            optimizer=run.optimizer,
            scheduler=run.scheduler,
            preprocessor=run.preprocessor,
            postprocessor=run.postprocessor,
            num_processes=run.accelerator.num_processes,
            batch_size=run.cfg.batch_size,
            model_state_dict=weights,
            optim_state_dict=moments,
        )
        if run.craft.enabled:
            write_craft_settings(partial / _compat.PRETRAINED_MODEL_DIR, run.craft, teacher)
            _write_state(partial / _compat.TRAINING_STATE_DIR, run, constraint, log, retention)
        _flush(partial)
        _put_in_place(partial, final)
        _point(final.parent / _compat.LAST_CHECKPOINT_LINK, final.name)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(partial)
        raise RunError(_why_not_saved(final, error)) from error
    return final


def _write_state(
    folder: Path,
    run: Run,
    constraint: RetentionConstraint | None,
    log: dict[str, Any],
    retention: Retention | None,
) -> None:
    saved = None if constraint is None else constraint.state_dict()
    (folder / STATE_NAME).write_text(json.dumps({"step": run.step, "constraint": saved, "log": log}))
    if retention is None or retention.reference is None:
        return
    # As large as the trained weights and the same in every checkpoint of a run: written once, then linked.
    last = folder.parent.parent / _compat.LAST_CHECKPOINT_LINK / _compat.TRAINING_STATE_DIR / REFERENCE_NAME
    if last.is_file():
        with contextlib.suppress(OSError):  # the file system may know no links
            os.link(last.resolve(), folder / REFERENCE_NAME)
            return
    save_file({name: tensor.contiguous() for name, tensor in retention.reference.items()}, folder / REFERENCE_NAME)


def load_reference(run: Run) -> dict[str, Tensor] | None:
    """Return the tensors that a resumed run retains and cannot make again; None where there are none."""
    if not run.cfg.resume:
        return None
    path = run.cfg.checkpoint_path / _compat.TRAINING_STATE_DIR / REFERENCE_NAME
    return load_file(path, device=str(run.accelerator.device)) if path.is_file() else None


def load(run: Run, constraint: RetentionConstraint | None) -> dict[str, Any]:
    """Put the constraint where the checkpoint of a resumed run left it; return the state of its log.

    Raises:
        StateError: If the checkpoint holds no such state, or one that does not fit.
    """
    path = run.cfg.checkpoint_path / _compat.TRAINING_STATE_DIR / STATE_NAME
    if not path.is_file():
        raise StateError(
            f"{run.cfg.checkpoint_path} holds no {STATE_NAME}, so it was not written with CRaFT on and λ cannot go on "
            "from it: start a new run with `--policy.path` set to its `pretrained_model`, or resume with "
            "`--craft.enabled=false`."
        )
    state = json.loads(path.read_text())
    if (constraint is None) != (state["constraint"] is None):
        raise StateError(
            f"`--craft.retention_mode={run.craft.retention_mode}` is not what {run.cfg.checkpoint_path} was trained "
            "with: resume with the saved mode, or start a new run."
        )
    if constraint is not None:
        constraint.load_state_dict(state["constraint"])
    log: dict[str, Any] = state["log"]
    return log


def keep_if_best(checkpoint: Path, card: dict[str, Any]) -> bool:
    """Let `checkpoints/best` point at `checkpoint` if it is within budget and its task loss is the lowest so far.

    Args:
        checkpoint: A whole checkpoint.
        card: Its numbers: `within_budget` and `task_loss` decide, the rest is for the reader.
    """
    best = best_so_far(checkpoint.parent)
    if not card["within_budget"] or (best is not None and best["task_loss"] <= card["task_loss"]):
        return False
    partial = checkpoint.with_name(f"{INCOMPLETE}{BEST_CARD}")
    partial.write_text(json.dumps(card, indent=4) + "\n")
    _point(checkpoint.with_name(BEST_LINK), checkpoint.name)
    partial.replace(checkpoint.with_name(BEST_CARD))
    return True


def best_so_far(checkpoints: Path) -> dict[str, Any] | None:
    """Return the card of the best checkpoint, or None where there is none."""
    path = checkpoints / BEST_CARD
    if not path.is_file():
        return None
    card: dict[str, Any] = json.loads(path.read_text())
    return card


def remove_incomplete(checkpoints: Path) -> None:
    """Remove what an interrupted save left behind."""
    for left in checkpoints.glob(f"{INCOMPLETE}*"):
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def _flush(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put_in_place(partial: Path, final: Path) -> None:
    if final.exists():
        # A run that was killed after this step and resumed from before it comes here again.
        old = final.with_name(f"{INCOMPLETE}old-{final.name}")
        final.rename(old)
        partial.rename(final)
        shutil.rmtree(old)
    else:
        partial.rename(final)


def _point(link: Path, target: str) -> None:
    partial = link.with_name(f"{INCOMPLETE}{link.name}")
    partial.unlink(missing_ok=True)
    partial.symlink_to(target)
    partial.replace(link)


def _why_not_saved(final: Path, error: Exception) -> str:
    full = "No space left" in str(error) or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT))
    reason = "the disk is full" if full else f"{type(error).__name__}: {error}"
    last = final.with_name(_compat.LAST_CHECKPOINT_LINK)
    left = f"the last whole one is {last.resolve()}" if last.exists() else "there is no earlier one"
    return (
        f"The checkpoint {final} could not be written ({reason}); {left}. Free some space and go on with "
        "`lerobot-craft train --resume=true --config_path=.../checkpoints/last/pretrained_model/train_config.json`."
    )
