# SPDX-License-Identifier: Apache-2.0
"""Task batch and anchors in one forward and one backward pass; decides where that is the same as two.

A pass of their own costs a few anchors as much as many: the weights are read again, every kernel is launched again and
every gradient added up again. As further rows of the task batch they cost their share of it.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lerobot_craft.constraint import RetentionConstraint
from lerobot_craft.policies import adapter_for, sample_losses
from lerobot_craft.policies._base import ACTION_IS_PAD, PolicyAdapter
from lerobot_craft.retention._own_loss import OwnLossRetention
from lerobot_craft.step_report import StepReport
from lerobot_craft.training._build import Run
from lerobot_craft.training._retention import Retention, with_token_labels

logger = logging.getLogger(__name__)

# What a policy's loss may read of a batch.
_READ = ("observation.", "action")


class Joined(NamedTuple):
    """Both losses of one pass.

    Attributes:
        total: What to backpropagate.
        task: The task loss.
        report: What retention did.
    """

    total: Tensor
    task: Tensor
    report: StepReport


class OnePass:
    """The step of a run whose anchors are further rows of the task batch.

    Args:
        run: The run.
        constraint: Its constraint.
        term: Its term, a loss of the policy's own.
    """

    def __init__(self, run: Run, constraint: RetentionConstraint, term: OwnLossRetention) -> None:
        self._run = run
        self._constraint = constraint
        self._term = term
        self._fits = True

    def losses(self, step: int, batch: dict[str, Any], *, statistics: bool) -> Joined | None:
        """Return both losses on the task batch and the next anchors.

        Args:
            step: The number of the step.
            batch: The preprocessed task batch.
            statistics: Whether the log wants what takes a retention gradient of its own.

        Returns:
            None in a step that needs two passes, or none for anchors.
        """
        if not self._fits or not self._constraint.joins(step, statistics=statistics):
            return None
        if self._constraint.budget.reference is None:
            self._constraint.calibrate()
        run = self._run
        anchors = with_token_labels(self._term.next_batch(), run.accelerator.device)
        rows = join_batches(batch, anchors, adapter_for(run.model).unread)
        if rows is None:
            self._fits = False
            logger.info("Anchors take a pass of their own: what they hold does not fit the task's batches.")
            return None
        with run.accelerator.autocast():
            found = sample_losses(run.policy, rows)
        if found is None:
            raise RuntimeError("The policy gave no loss for each sample.")
        count = _length(batch)
        task, retention = found.mean(slice(count)), found.mean(slice(count, None))
        self._term.metrics = {"retention_loss": retention.detach()}
        total, report = self._constraint.join(step, task, retention)
        return Joined(total, task, report)


def one_pass(run: Run, constraint: RetentionConstraint | None, retention: Retention | None) -> OnePass | None:
    """Return the step in one pass where it does what two would do; None elsewhere.

    That takes settings that add the two losses up and no more, a term that is the policy's own loss, a policy that
    tells it sample by sample, and no layer that differs between training and evaluation: task rows run in the one mode
    and anchors in the other.
    """
    if constraint is None or retention is None or not isinstance(retention.term, OwnLossRetention):
        return None
    accelerator = run.accelerator
    # Step 0 is one in which retention is due.
    plain = constraint.joins(0) and accelerator.scaler is None and run.sample_weighter is None
    tells = type(adapter_for(run.model)).sample_losses is not PolicyAdapter.sample_losses
    if not (plain and tells and modes_agree(run.model)):
        return None
    return OnePass(run, constraint, retention.term)


def modes_agree(model: nn.Module) -> bool:
    """Whether a model computes the same in `train()` as in `eval()`: no dropout, no statistics of a batch."""
    return not any(_differs(module) for module in model.modules())


def _differs(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return True
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    # Attention has its dropout as a number, and so have the configs of transformers' layers.
    shares = (value for name, value in vars(module).items() if "dropout" in name and isinstance(value, float))
    return any(share > 0 for share in shares)


def join_batches(
    task: Mapping[str, Any], anchors: Mapping[str, Any], unread: frozenset[str] = frozenset()
) -> dict[str, Any] | None:
    """Return the anchors' rows under the task's; instructions and tokens are padded to the longer.

    Args:
        task: A preprocessed, labelled batch.
        anchors: Another.
        unread: Labels that the policy's loss does not read.

    Returns:
        None where one of them has what the other lacks, or in another shape.
    """
    ours, theirs = (_read(batch, unread) for batch in (task, anchors))
    if ACTION_IS_PAD in theirs.keys() ^ ours.keys() and "action" in theirs.keys() & ours.keys():
        # Nothing is padding where nobody says so.
        for batch in (ours, theirs):
            action = batch["action"]
            nothing = torch.zeros(action.shape[:2], dtype=torch.bool, device=action.device)
            batch.setdefault(ACTION_IS_PAD, nothing)
    if ours.keys() != theirs.keys():
        return None
    rows: dict[str, Any] = {}
    for name, above in ours.items():
        below = theirs[name].to(above.device, above.dtype, non_blocking=True)
        if above.ndim == 2 and below.ndim == 2 and not above.is_floating_point():
            above, below = _equally_long(above, below)
        if above.shape[1:] != below.shape[1:]:
            return None
        rows[name] = torch.cat([above, below])
    return rows


def _read(batch: Mapping[str, Any], unread: frozenset[str]) -> dict[str, Tensor]:
    return {
        name: value
        for name, value in batch.items()
        if isinstance(value, Tensor)
        and name.startswith(_READ)
        and name not in unread
        # Which frames of an observation's window are missing: no policy here reads it.
        and (name == ACTION_IS_PAD or not name.endswith("_is_pad"))
    }


def _equally_long(above: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    length = max(above.shape[1], below.shape[1])
    padded = [nn.functional.pad(rows, (0, length - rows.shape[1])) for rows in (above, below)]
    return padded[0], padded[1]


def _length(batch: Mapping[str, Any]) -> int:
    return len(next(value for name, value in batch.items() if isinstance(value, Tensor) and name.startswith(_READ)))
