# SPDX-License-Identifier: Apache-2.0
"""The multiplier λ as state on the device; decides how λ moves, never how it is used."""

from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from lerobot_craft.errors import StateError


class LambdaController(StrEnum):
    """What moves λ: nothing, the violation (dual ascent), or the violation and its change (PI)."""

    FIXED = "fixed"
    DUAL = "dual"
    PI = "pi"


class Multiplier:
    """λ ≥ 0 of the Lagrangian `L_task + λ·(L_retain − ε)`, moved by the violation e = L_retain − ε.

    With the exponential average ξ_t = ν·ξ_{t−1} + (1 − ν)·e_t, which starts at the first violation seen:

    | controller | λ before clipping to [0, λ_max] |
    |---|---|
    | fixed | λ |
    | dual | λ + lr·ξ_t |
    | pi | λ + lr·e_t + kp·(ξ_t − ξ_{t−1}) |

    `dual` with ν = 0 is plain dual ascent. `pi` is the incremental form of nuPI (Sohrabi et al., "On PI
    Controllers for Updating Lagrange Multipliers in Constrained Optimization", ICML 2024), clipped after every step
    so that the integral cannot wind up outside the range.

    Args:
        controller: What moves λ.
        initial: λ at the start.
        lr: Step of the integral part.
        maximum: Upper end of the range.
        kp: Gain of the proportional part; read by `pi` only.
        averaging: ν in [0, 1): how much of the old average is kept. Small anchor batches want 0.9 or more.
        device: Where λ lives.
    """

    def __init__(
        self,
        controller: LambdaController = LambdaController.DUAL,
        *,
        initial: float = 1.0,
        lr: float = 0.01,
        maximum: float = 10.0,
        kp: float = 0.0,
        averaging: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.controller = controller
        self.lr = lr
        self.maximum = maximum
        self.kp = kp
        self.averaging = averaging
        dtype = _scalar_dtype(torch.device(device))
        self.value = torch.full((), initial, dtype=dtype, device=device)
        self.average = torch.full((), torch.nan, dtype=dtype, device=device)

    @torch.no_grad()
    def update_(self, violation: Tensor, *, hold: Tensor, no_growth: Tensor) -> None:
        """Move λ by one violation.

        Args:
            violation: L_retain − ε, a 0-dimensional tensor.
            hold: Boolean tensor; where true nothing changes (the step is going to be skipped, or the loss was
                not finite).
            no_growth: Boolean tensor; where true λ may fall but not rise (the retention step is at its bound, so
                a larger λ would change nothing now and take long to come down later).
        """
        violation = violation.to(self.value)
        average = self.averaged(violation)
        match self.controller:
            case LambdaController.FIXED:
                moved = self.value
            case LambdaController.DUAL:
                moved = self.value + self.lr * average
            case LambdaController.PI:
                moved = (
                    self.value + self.lr * violation + self.kp * torch.where(self._unseen, 0.0, average - self.average)
                )
        moved = torch.where(no_growth, torch.minimum(moved, self.value), moved)
        self.average = torch.where(hold, self.average, average)
        if self.controller is not LambdaController.FIXED:
            self.value = torch.where(hold, self.value, moved.clamp(0.0, self.maximum))

    def averaged(self, violation: Tensor) -> Tensor:
        """Return the average ξ as it is once `violation` has been seen, without keeping it."""
        violation = violation.to(self.value)
        return torch.lerp(violation, torch.where(self._unseen, violation, self.average), self.averaging)

    @property
    def _unseen(self) -> Tensor:
        return torch.isnan(self.average)

    def to_(self, device: torch.device) -> None:
        """Move λ to another device."""
        dtype = _scalar_dtype(device)
        self.value, self.average = self.value.to(device, dtype), self.average.to(device, dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return all that survives a step, as plain numbers."""
        return {
            "controller": str(self.controller),
            "value": float(self.value),
            "average": float(self.average),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            StateError: If the state is of another controller, or λ lies outside this one's range.
        """
        if state["controller"] != self.controller:
            raise StateError(
                f"The saved λ was moved by `lambda_controller={state['controller']}`, this run has "
                f"`{self.controller}`: resume with the saved controller, or start a new run."
            )
        value = state["value"]
        if self.controller is not LambdaController.FIXED and not 0.0 <= value <= self.maximum:
            raise StateError(f"The saved λ is {value}, outside [0, {self.maximum}]: set `lambda_max` to what it was.")
        self.value = torch.full_like(self.value, value)
        self.average = torch.full_like(self.average, state["average"])


def _scalar_dtype(device: torch.device) -> torch.dtype:
    # float64 wherever the device has it: λ integrates small increments over a whole run.
    return torch.float32 if device.type == "mps" else torch.float64
