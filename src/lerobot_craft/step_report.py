# SPDX-License-Identifier: Apache-2.0
"""What one constrained step did, as one named result; logging reads this and nothing else."""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor


class StepReport(NamedTuple):
    """The result of one `RetentionConstraint.apply_`. Tensors stay on the device until `floats` is called.

    Attributes:
        step: The step the report is about.
        retained: Whether retention ran in this step; if not, the losses and λ are those of the last time.
        epsilon: The bound on `retention_loss` at this step, in units of the loss.
        retention_loss: L_retain, averaged over processes; NaN before the first time.
        multiplier: λ as it weighed r in this step.
        violation: The (averaged) violation that drove λ, in the units ε was configured in.
        violated: Whether that is above 0.
        dot: g·r. NaN on the cheap path, which does not measure it; so are the next three.
        cosine: Cosine between g and r.
        task_norm: ‖g‖ before the merge.
        retention_norm: ‖r‖.
        conflict: Whether the cosine was below the threshold; False on the cheap path.
        bounded: Whether `max_retention_ratio` took effect.
        dropped: How many retention gradients were dropped so far because they were not finite.
    """

    step: int
    retained: bool
    epsilon: float
    retention_loss: Tensor
    multiplier: Tensor
    violation: Tensor
    violated: Tensor
    dot: Tensor
    cosine: Tensor
    task_norm: Tensor
    retention_norm: Tensor
    conflict: Tensor
    bounded: Tensor
    dropped: Tensor

    def floats(self) -> dict[str, float]:
        """Read all fields in one transfer from the device, as plain numbers.

        This is the only host synchronisation of a step, and only of the steps that call it.
        """
        tensors = {name: value for name, value in self._asdict().items() if isinstance(value, Tensor)}
        values = torch.stack([value.to(self.multiplier) for value in tensors.values()]).tolist()
        numbers = dict(zip(tensors, values, strict=True))
        say_dropped(numbers["dropped"])
        return {name: numbers[name] if name in numbers else float(value) for name, value in self._asdict().items()}


def say_dropped(count: float) -> None:
    """Warn about dropped gradients; Python shows the same warning from one place once."""
    if count > 0:
        warnings.warn(
            "A retention gradient was not finite and was dropped; `dropped` in the step report counts them. "
            "Look for float16 overflow (`loss_scale`) or non-finite values in the anchors.",
            RuntimeWarning,
            stacklevel=3,
        )
