# SPDX-License-Identifier: Apache-2.0
"""The budget ε(t) of the retention loss: its schedule and its units; never sees a loss while training runs."""

import math
from enum import StrEnum
from typing import Any, NamedTuple

from lerobot_craft.errors import SettingsError, StateError


class EpsilonSchedule(StrEnum):
    """The shape of ε between its start and its end; `constant` stays at the start."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    EXPONENTIAL = "exponential"


class EpsilonUnits(StrEnum):
    """What ε counts: the retention loss itself, or multiples of a reference measured at the start."""

    RAW = "raw"
    RELATIVE = "relative"


class Reference(NamedTuple):
    """Where relative units begin and how long they are, both in units of the retention loss.

    Attributes:
        floor: The loss of the teacher itself; no student can be asked to score less.
        scale: The loss, above the floor, that counts as a drift of 1.
    """

    floor: float
    scale: float


class Budget:
    """The bound of `L_retain(θ) ≤ ε(t)`.

    With t running from 0 to 1 over the decay, ε goes from s (start) to e (end):

    | schedule | ε(t) |
    |---|---|
    | constant | s |
    | linear | s + (e − s)·t |
    | cosine | e + (s − e)·(1 + cos πt)/2 |
    | exponential | s·(e/s)ᵗ |

    In relative units the bound on the loss is `floor + ε(t)·scale`.

    Args:
        start: ε at step 0.
        end: ε once the decay is over.
        decay_steps: How many steps the decay takes.
        schedule: Its shape.
        units: What `start` and `end` count.
    """

    def __init__(
        self,
        start: float,
        end: float,
        decay_steps: int,
        schedule: EpsilonSchedule = EpsilonSchedule.LINEAR,
        units: EpsilonUnits = EpsilonUnits.RAW,
    ) -> None:
        self.start = start
        self.end = end
        self.decay_steps = decay_steps
        self.schedule = schedule
        self.units = units
        self.reference: Reference | None = Reference(0.0, 1.0) if units is EpsilonUnits.RAW else None

    def epsilon(self, step: int) -> float:
        """Return ε at `step`, in the units it was configured in."""
        t = min(step / self.decay_steps, 1.0) if self.decay_steps > 0 else 1.0
        match self.schedule:
            case EpsilonSchedule.CONSTANT:
                return self.start
            case EpsilonSchedule.LINEAR:
                return self.start + (self.end - self.start) * t
            case EpsilonSchedule.COSINE:
                return self.end + (self.start - self.end) * (1.0 + math.cos(math.pi * t)) / 2.0
            case EpsilonSchedule.EXPONENTIAL:
                return float(self.start * (self.end / self.start) ** t)

    def bound(self, step: int) -> float:
        """Return the largest retention loss allowed at `step`, in units of the loss.

        Raises:
            StateError: If the units are relative and no reference was set.
        """
        reference = self.known_reference
        return reference.floor + self.epsilon(step) * reference.scale

    def calibrate(self, reference: Reference) -> None:
        """Fix the reference of relative units.

        Raises:
            SettingsError: If the reference cannot serve as a unit.
        """
        if not (math.isfinite(reference.floor) and math.isfinite(reference.scale) and reference.scale > 0):
            raise SettingsError(
                [
                    f"`epsilon_units='relative'` needs a finite reference with a scale above 0, got {reference}. "
                    "A term that is 0 at the start has no scale of its own: give it a `reference()`, or set "
                    "`epsilon_units='raw'`."
                ]
            )
        self.reference = Reference(float(reference.floor), float(reference.scale))

    def state_dict(self) -> dict[str, Any]:
        """Return what survives a step: the reference."""
        return {"reference": None if self.reference is None else list(self.reference)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        saved = state["reference"]
        if saved is None and self.units is EpsilonUnits.RAW:
            raise StateError(
                "The saved budget was relative and this one is in raw units: set `epsilon_units='relative'`."
            )
        self.reference = None if saved is None else Reference(*saved)

    @property
    def known_reference(self) -> Reference:
        """The reference.

        Raises:
            StateError: If the units are relative and it was not measured yet.
        """
        if self.reference is None:
            raise StateError("The budget is relative and no reference was measured: call `calibrate` first.")
        return self.reference
