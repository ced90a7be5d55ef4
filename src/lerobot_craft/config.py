# SPDX-License-Identifier: Apache-2.0
"""The settings of the constrained step, their defaults and their only validation; builds nothing."""

import math
from dataclasses import dataclass, fields
from enum import StrEnum  # noqa: TC003 -- a dataclass field walker may resolve annotations at run time

from lerobot_craft.dual import EpsilonSchedule, EpsilonUnits, LambdaController
from lerobot_craft.errors import SettingsError
from lerobot_craft.surgery import MergeMode, Projection


@dataclass(kw_only=True)
class ConstraintConfig:
    """Settings of a `RetentionConstraint`; every problem is reported at once.

    The defaults are CRaFT's as first specified. `preset("craft")` holds the settings that retain best in our
    measurements.

    Attributes:
        lambda_controller: What moves λ: `fixed`, `dual` (dual ascent) or `pi` (nuPI).
        initial_lambda: λ at the start.
        lambda_lr: Step of dual ascent, or integral gain of `pi`, per unit of violation (in the units of ε).
        lambda_max: Upper end of λ's range.
        lambda_kp: Proportional gain of `pi`.
        violation_ema: Share of the old average kept when L_retain is averaged over steps to drive λ, in [0, 1).
        epsilon_start: The budget ε at step 0, and all along for the schedule `constant`.
        epsilon_end: ε at the end of the decay.
        epsilon_decay_steps: Length of the decay in steps; 0 is the whole run.
        epsilon_schedule: `constant`, `linear`, `cosine` or `exponential`.
        epsilon_units: `raw`: ε bounds L_retain itself; `relative`: ε counts from, and in multiples of, a reference
            measured at the start.
        use_grad_projection: False turns `projection` off.
        projection: `off`, `always` (on every conflict) or `violated` (on a conflict while the budget is violated).
        conflict_threshold: Gradients conflict when their cosine is below this.
        merge_mode: `weighted`, `equal` or `task_priority`.
        retention_freq: Retention runs every that many steps.
        scale_by_freq: Multiply r's weight by `retention_freq`, to make up for the steps without it.
        max_retention_ratio: Bound c on ‖λ·r‖ ≤ c·‖g‖, so that a budget out of reach cannot drown the new task.
            None is no bound. A bound needs both norms, hence the separate retention gradient.
        loss_scale: Factor on L_retain during its backward pass, undone afterwards, against float16 underflow; halves
            itself when the gradient overflows. 65536 is usual with float16, 1 with anything else.
    """

    lambda_controller: str = LambdaController.DUAL
    initial_lambda: float = 1.0
    lambda_lr: float = 0.01
    lambda_max: float = 10.0
    lambda_kp: float = 1.0
    violation_ema: float = 0.0
    epsilon_start: float = 1.0
    epsilon_end: float = 0.1
    epsilon_decay_steps: int = 0
    epsilon_schedule: str = EpsilonSchedule.LINEAR
    epsilon_units: str = EpsilonUnits.RAW
    use_grad_projection: bool = True
    projection: str = Projection.VIOLATED
    conflict_threshold: float = -0.1
    merge_mode: str = MergeMode.WEIGHTED
    retention_freq: int = 5
    scale_by_freq: bool = False
    max_retention_ratio: float | None = None
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        self.validate()

    @property
    def active_projection(self) -> Projection:
        """The projection that takes effect once `use_grad_projection` is heard."""
        return Projection(self.projection) if self.use_grad_projection else Projection.OFF

    @property
    def weighs_gradients(self) -> bool:
        """Whether the task's and the retention gradient have to be had apart from each other."""
        bounded = self.max_retention_ratio is not None or self.merge_mode == MergeMode.EQUAL
        return bounded or self.active_projection is not Projection.OFF

    def validate(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            SettingsError: With one line per problem.
        """
        if problems := self.problems():
            raise SettingsError(problems)

    def problems(self) -> list[str]:
        """Return one line per setting that cannot work; empty when all can."""
        nans = [
            f"`{field.name}` is NaN: expected a number."
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), float) and math.isnan(value)
        ]
        return (
            nans + self._choice_problems() + self._lambda_problems() + self._epsilon_problems() + self._step_problems()
        )

    def _choice_problems(self) -> list[str]:
        choices: dict[str, type[StrEnum]] = {
            "lambda_controller": LambdaController,
            "epsilon_schedule": EpsilonSchedule,
            "epsilon_units": EpsilonUnits,
            "projection": Projection,
            "merge_mode": MergeMode,
        }
        return [
            f"`{name}={value}` is unknown: expected one of {', '.join(kind)}."
            for name, kind in choices.items()
            if (value := getattr(self, name)) not in list(kind)
        ]

    def _lambda_problems(self) -> list[str]:
        found = [
            f"`{name}={value}` is negative or infinite: expected 0 or more."
            for name in ("initial_lambda", "lambda_lr", "lambda_max", "lambda_kp")
            if (value := getattr(self, name)) < 0 or math.isinf(value)
        ]
        if self.initial_lambda > self.lambda_max:
            found.append(
                f"`initial_lambda={self.initial_lambda}` is above `lambda_max={self.lambda_max}`: "
                "lower the first or raise the second."
            )
        if self.violation_ema < 0 or self.violation_ema >= 1:
            found.append(f"`violation_ema={self.violation_ema}` is outside [0, 1): expected 0, or 0.9 to 0.99.")
        return found

    def _epsilon_problems(self) -> list[str]:
        found = [
            f"`{name}={value}` is negative or infinite: expected 0 or more."
            for name in ("epsilon_start", "epsilon_end")
            if (value := getattr(self, name)) < 0 or math.isinf(value)
        ]
        if self.epsilon_schedule != EpsilonSchedule.CONSTANT and self.epsilon_start < self.epsilon_end:
            found.append(
                f"`epsilon_start={self.epsilon_start}` is below `epsilon_end={self.epsilon_end}`: a budget only "
                "tightens; swap them, or set `epsilon_schedule=constant`, which stays at `epsilon_start`."
            )
        if self.epsilon_schedule == EpsilonSchedule.EXPONENTIAL and min(self.epsilon_start, self.epsilon_end) == 0:
            found.append("`epsilon_schedule=exponential` never reaches 0: set `epsilon_end` above 0, or `linear`.")
        if self.epsilon_decay_steps < 0:
            found.append(
                f"`epsilon_decay_steps={self.epsilon_decay_steps}` is negative: expected 0 (whole run) or more."
            )
        return found

    def _step_problems(self) -> list[str]:
        found = []
        if not isinstance(self.retention_freq, int) or self.retention_freq < 1:
            found.append(f"`retention_freq={self.retention_freq}`: expected a whole number of steps, 1 or more.")
        if self.conflict_threshold < -1 or self.conflict_threshold > 1:
            found.append(f"`conflict_threshold={self.conflict_threshold}` is no cosine: expected -1 to 1.")
        if self.max_retention_ratio is not None and self.max_retention_ratio <= 0:
            found.append(f"`max_retention_ratio={self.max_retention_ratio}`: expected above 0, or None for no bound.")
        if self.loss_scale <= 0 or math.isinf(self.loss_scale):
            found.append(f"`loss_scale={self.loss_scale}`: expected above 0; 65536 is usual for float16.")
        return found
