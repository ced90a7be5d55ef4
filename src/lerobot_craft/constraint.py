# SPDX-License-Identifier: Apache-2.0
"""`RetentionConstraint`: the one operation between `backward()` and `step()`.

Puts `surgery`, `dual` and a retention term together. Knows nothing of robots, datasets or optimizers, and does not
cover parameters sharded by FSDP.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lerobot_craft import _distributed
from lerobot_craft.config import ConstraintConfig
from lerobot_craft.dual import Budget, EpsilonSchedule, EpsilonUnits, LambdaController, Multiplier, Reference
from lerobot_craft.errors import UNREACHED, RetentionError, SettingsError, StateError
from lerobot_craft.retention._protocol import PreparingTerm, ReferencedTerm, RetentionTerm, StatefulTerm
from lerobot_craft.step_report import StepReport, say_dropped
from lerobot_craft.surgery import (
    Gradient,
    GradientProducts,
    MergeMode,
    Projection,
    add_,
    conflicts,
    gradient_products,
    merge_,
    retention_weight,
    weigh,
)
from lerobot_craft.taps import eval_mode

# Enough that the mean of a noisy loss is known to a quarter of its spread.
_REFERENCE_BATCHES = 16
_STATE_VERSION = 1


class RetentionConstraint:
    """Adds to the task gradient what keeps `L_retain(θ) ≤ ε(t)`.

        loss.backward()
        report = constraint.apply_(step)
        optimizer.step()

    One call of `apply_` does this, in this order, every `retention_freq` steps:

    1. The task gradient g stays where `backward()` left it, in `.grad`.
    2. The retention term is evaluated with the model in `eval()` mode, and `torch.autograd.grad` gives r. Under several
       processes r and L_retain are averaged over them.
    3. `g·r`, `‖g‖` and `‖r‖` are accumulated in float32 on the device, and the cosine is compared with the threshold.
    4. Projection and merge are one pass, `.grad ← a·.grad + b·r`.
    5. λ moves by the violation, for the next step.

    **The cheap path.** With projection off, no bound on the retention step and no statistics asked for, the gradient of
    λ·L_retain is added as it is, without 3. Where one forward pass gives both losses, `join` saves that pass too.

    **On a GPU** call `look_ahead(step + 1)` after `optimizer.step()`, before anything that reads a result: the next
    anchors are then prepared while the device is still at work.

    **Order with other tools.** Gradient accumulation: call `apply_` once, after the last micro-batch's `backward()`.
    Gradient scaler: `scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, `apply_`, clip, `scaler.step`,
    `scaler.update`; set `loss_scale` too, and λ rests in the steps that the scaler skips. Clipping: after `apply_`, on
    the merged gradient. DistributedDataParallel: after `backward()`, which has averaged g; every process must call
    `apply_` in the same steps.

    Args:
        model: The model that is trained; parameters that do not require a gradient are left alone.
        retention: Returns the retention loss for the next anchor batch.
        config: The settings.
        total_steps: Length of the run, for an ε that decays over all of it.

    Raises:
        SettingsError: With every setting that cannot work.
    """

    def __init__(
        self,
        model: nn.Module,
        retention: RetentionTerm,
        config: ConstraintConfig | None = None,
        *,
        total_steps: int | None = None,
    ) -> None:
        config = ConstraintConfig() if config is None else config
        config.validate()
        self.config = config
        self._model = model
        self._retention = retention
        self._projection = config.active_projection
        self._merge_mode = MergeMode(config.merge_mode)
        self.budget = _make_budget(config, total_steps)
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self.multiplier = Multiplier(
            LambdaController(config.lambda_controller),
            initial=config.initial_lambda,
            lr=config.lambda_lr,
            maximum=config.lambda_max,
            kp=config.lambda_kp,
            averaging=config.violation_ema,
            device=device,
        )
        unknown = torch.full_like(self.multiplier.value, torch.nan)
        self._last_loss = unknown
        self._loss_scale = torch.full_like(unknown, config.loss_scale)
        self._dropped = torch.zeros_like(unknown)

    def apply_(self, step: int, *, statistics: bool = False) -> StepReport:
        """Add the retention gradient to `.grad`, in place.

        Args:
            step: The optimizer step, counted from 0 or 1 as the loop does; retention runs where `retention_freq`
                divides it.
            statistics: Measure dot product, cosine and norms in this step even where the method does not need them,
                at the price of passes over both gradients.

        Returns:
            What happened, on the device.

        Raises:
            RetentionError: If the term's loss is not a scalar with a graph to a trainable parameter.
        """
        if self.budget.reference is None:
            self.calibrate()
        if not self._due(step) or (self._inert and not statistics):
            return self._report(step, retained=False)
        parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        # With dropout or VAE noise the teacher itself would violate the budget, and λ would run away.
        with eval_mode(self._model), torch.enable_grad():
            loss = self._checked_loss()
            self._follow(loss.device)
            self._last_loss = _averaged(loss).to(self.multiplier.value)
            if statistics or self.config.weighs_gradients:
                return self._apply_separately(step, loss, parameters)
            return self._apply_directly(step, loss, parameters)

    def joins(self, step: int, *, statistics: bool = False) -> bool:
        """Whether `join` does in this step all that `apply_` would do."""
        needs_two = statistics or self.config.weighs_gradients or self.config.loss_scale != 1.0
        return self._due(step) and not self._inert and not needs_two

    def join(self, step: int, task_loss: Tensor, retention_loss: Tensor) -> tuple[Tensor, StepReport]:
        """Return L_task + λ·L_retain for one backward pass of both, instead of `backward()` and `apply_`.

        For a model that computes both in one forward pass, and in each of several processes where there are several:
        the anchors then cost their share of a batch and no pass of their own. Only where `joins` says so, and after
        `calibrate`. Unlike `apply_`, an L_retain that is not finite spoils the gradient.

        Args:
            step: As for `apply_`.
            task_loss: A scalar with a graph.
            retention_loss: The retention term's loss in the same graph.

        Returns:
            The loss to backpropagate, and what happened.
        """
        self._follow(retention_loss.device)
        self._last_loss = _averaged(retention_loss).to(self.multiplier.value)
        weight = retention_weight(self.multiplier.value, self._merge_mode) * self._frequency_scale
        total = task_loss + weight.to(retention_loss) * retention_loss
        report = self._finish(
            self._report(step, retained=True),
            usable=torch.isfinite(self._last_loss),
            task_finite=torch.isfinite(task_loss.detach()),
        )
        return total, report

    def look_ahead(self, step: int) -> None:
        """Let the retention term prepare the anchors of a step to come, if they are due then and the term can.

        For a loop on a GPU, after `optimizer.step()` and before anything that reads a result: there the host would only
        wait for the device. What goes wrong is raised by the `apply_` that needs the anchors.

        Args:
            step: The step to come, as `apply_` will be told.
        """
        known = self.budget.reference is not None
        if known and self._due(step) and not self._inert and isinstance(self._retention, PreparingTerm):
            self._retention.look_ahead()

    def calibrate(self) -> Reference:
        """Measure the reference of a relative budget, on the model as it is now.

        `apply_` does this by itself before its first step. A term with a `reference()` is asked for it; of any other
        the mean loss over a few anchor batches is both floor and unit, so that ε = 0.1 allows 10 % more than that.

        Returns:
            The reference, the same in every process.
        """
        with eval_mode(self._model), torch.no_grad():
            if isinstance(self._retention, ReferencedTerm):
                reference = self._retention.reference()
            else:
                mean = torch.stack([self._retention().detach() for _ in range(_REFERENCE_BATCHES)]).mean().item()
                reference = Reference(mean, mean)
        measured = torch.tensor(reference, dtype=self.multiplier.value.dtype, device=self.multiplier.value.device)
        _distributed.average_([measured])
        self.budget.calibrate(Reference(*measured.tolist()))
        return self.budget.known_reference

    def state_dict(self) -> dict[str, Any]:
        """Return all that survives a step, as plain numbers (fit for JSON), the term's own state included."""
        say_dropped(float(self._dropped))
        return {
            "version": _STATE_VERSION,
            "multiplier": self.multiplier.state_dict(),
            "budget": self.budget.state_dict(),
            "last_loss": float(self._last_loss),
            "loss_scale": float(self._loss_scale),
            "dropped": int(self._dropped),
            "retention": self._retention.state_dict() if isinstance(self._retention, StatefulTerm) else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            StateError: If the state does not fit this constraint.
        """
        if state["version"] != _STATE_VERSION:
            raise StateError(f"The saved state has version {state['version']}, this release reads {_STATE_VERSION}.")
        stateful = isinstance(self._retention, StatefulTerm)
        if stateful != (state["retention"] is not None):
            raise StateError(
                f"The saved state holds {'no' if stateful else 'a'} state of a retention term, and this one "
                f"({type(self._retention).__name__}) {'needs' if stateful else 'takes'} "
                f"{'one' if stateful else 'none'}: resume with the retention mode that was saved."
            )
        self.multiplier.load_state_dict(state["multiplier"])
        self.budget.load_state_dict(state["budget"])
        self._last_loss = torch.full_like(self._last_loss, state["last_loss"])
        self._loss_scale = torch.full_like(self._loss_scale, state["loss_scale"])
        self._dropped = torch.full_like(self._dropped, state["dropped"])
        if isinstance(self._retention, StatefulTerm):
            self._retention.load_state_dict(state["retention"])

    def _due(self, step: int) -> bool:
        return step % self.config.retention_freq == 0

    @property
    def _inert(self) -> bool:
        # Not even zeros are added then: a parameter without gradient must stay without one, or weight decay sees it.
        fixed_at_zero = self.multiplier.controller is LambdaController.FIXED and self.config.initial_lambda == 0
        return fixed_at_zero and self._projection is Projection.OFF and self._merge_mode is not MergeMode.EQUAL

    @property
    def _frequency_scale(self) -> float:
        return float(self.config.retention_freq) if self.config.scale_by_freq else 1.0

    def _checked_loss(self) -> Tensor:
        loss = self._retention()
        if loss.ndim != 0 or not loss.requires_grad:
            raise RetentionError(
                f"The retention term returned a loss of shape {list(loss.shape)} with "
                f"`requires_grad={loss.requires_grad}`: expected a scalar with a graph to a trainable parameter. "
                "Was it computed under `torch.no_grad()`, or is every parameter in front of it frozen?"
            )
        return loss

    def _follow(self, device: torch.device) -> None:
        # The model may have moved since; state left behind would cost a host synchronisation at every step.
        if device != self.multiplier.value.device:
            self.multiplier.to_(device)
            self._last_loss, self._loss_scale, self._dropped = (
                scalar.to(self.multiplier.value) for scalar in (self._last_loss, self._loss_scale, self._dropped)
            )

    def _apply_separately(self, step: int, loss: Tensor, parameters: Sequence[nn.Parameter]) -> StepReport:
        scale = self._loss_scale
        retention = _gradient(loss, parameters, scale)
        scaled = gradient_products([parameter.grad for parameter in parameters], retention)
        products = GradientProducts(scaled.dot / scale, scaled.task_norm, scaled.retention_norm / scale)
        violation = self.multiplier.averaged(self._raw_violation(step))
        conflict = conflicts(products, self.config.conflict_threshold)
        surgery = weigh(
            products,
            self.multiplier.value,
            mode=self._merge_mode,
            project=conflict & self._projects(violation),
            max_ratio=self.config.max_retention_ratio,
            frequency_scale=self._frequency_scale,
        )
        if not self._inert:
            # A loss that is not finite has nothing to add; its gradient may look finite all the same.
            weight = torch.where(torch.isfinite(self._last_loss), surgery.retention_weight, 0.0)
            merge_(parameters, retention, surgery._replace(retention_weight=weight / scale))
        report = self._report(step, retained=True)._replace(
            dot=products.dot,
            cosine=products.cosine,
            task_norm=products.task_norm,
            retention_norm=products.retention_norm,
            conflict=conflict,
            bounded=surgery.bounded,
        )
        return self._finish(report, usable=products.finite, task_finite=torch.isfinite(products.task_norm))

    def _apply_directly(self, step: int, loss: Tensor, parameters: Sequence[nn.Parameter]) -> StepReport:
        scaled = self.config.loss_scale != 1.0
        # Only a scaler skips steps, so only then is the task gradient worth a pass of its own.
        task_norm = _norm_of_grad(parameters) if scaled else torch.zeros_like(self._last_loss)
        weight = retention_weight(self.multiplier.value, self._merge_mode) * self._frequency_scale
        weight = torch.where(torch.isfinite(self._last_loss), weight, 0.0)
        retention = _gradient(loss, parameters, weight * self._loss_scale)
        usable = add_(parameters, retention, self._loss_scale if scaled else None)
        return self._finish(self._report(step, retained=True), usable=usable, task_finite=torch.isfinite(task_norm))

    def _projects(self, violation: Tensor) -> Tensor:
        match self._projection:
            case Projection.OFF:
                return torch.zeros_like(violation, dtype=torch.bool)
            case Projection.ALWAYS:
                return torch.ones_like(violation, dtype=torch.bool)
            case Projection.VIOLATED:
                return violation > 0

    def _raw_violation(self, step: int) -> Tensor:
        return (self._last_loss - self.budget.bound(step)) / self.budget.known_reference.scale

    def _report(self, step: int, *, retained: bool) -> StepReport:
        violation = self.multiplier.averaged(self._raw_violation(step))
        unknown = torch.full_like(violation, torch.nan)
        no = torch.zeros_like(violation, dtype=torch.bool)
        return StepReport(
            step=step,
            retained=retained,
            epsilon=self.budget.bound(step),
            retention_loss=self._last_loss,
            multiplier=self.multiplier.value,
            violation=violation,
            violated=violation > 0,
            dot=unknown,
            cosine=unknown,
            task_norm=unknown,
            retention_norm=unknown,
            conflict=no,
            bounded=no,
            dropped=self._dropped,
        )

    def _finish(self, report: StepReport, *, usable: Tensor, task_finite: Tensor) -> StepReport:
        loss_finite = torch.isfinite(self._last_loss)
        if self.config.loss_scale != 1.0:
            overflow = loss_finite & ~usable
            self._loss_scale = torch.where(overflow, self._loss_scale / 2, self._loss_scale)
        usable = usable & loss_finite
        self._dropped = self._dropped + (~usable).to(self._dropped)
        self.multiplier.update_(
            self._raw_violation(report.step), hold=~(usable & task_finite), no_growth=report.bounded
        )
        return report._replace(dropped=self._dropped)


def _make_budget(config: ConstraintConfig, total_steps: int | None) -> Budget:
    schedule = EpsilonSchedule(config.epsilon_schedule)
    decay_steps = config.epsilon_decay_steps or total_steps
    if decay_steps is None:
        if schedule is not EpsilonSchedule.CONSTANT:
            raise SettingsError(
                [
                    f"`epsilon_schedule={schedule}` with `epsilon_decay_steps=0` decays over the whole run, and its "
                    "length is not known: pass `total_steps=…`, set `epsilon_decay_steps`, or use `constant`."
                ]
            )
        decay_steps = 0
    return Budget(config.epsilon_start, config.epsilon_end, decay_steps, schedule, EpsilonUnits(config.epsilon_units))


def _gradient(loss: Tensor, parameters: Sequence[nn.Parameter], factor: Tensor) -> list[Gradient]:
    """Return the gradient of `factor·loss`, averaged over processes.

    Not by `backward()`: that would run Python inside the pass for every gradient to be looked at, and pass the hooks of
    DistributedDataParallel, whose reducer takes parameters that only the anchors reach for used by the task.
    """
    several = _distributed.world_size() > 1
    found: list[Gradient] = list(
        torch.autograd.grad(
            loss,
            list(parameters),
            grad_outputs=factor.to(loss, copy=True),
            allow_unused=True,
            # Every process must average the same list, whichever parameters its own anchors reached.
            materialize_grads=several,
        )
    )
    if all(gradient is None for gradient in found):
        raise RetentionError(UNREACHED)
    if several:
        _distributed.average_([gradient for gradient in found if gradient is not None])
    return found


def _averaged(loss: Tensor) -> Tensor:
    mean = loss.detach().clone()
    _distributed.average_([mean])
    return mean


def _norm_of_grad(parameters: Sequence[nn.Parameter]) -> Tensor:
    return gradient_products([parameter.grad for parameter in parameters], [None] * len(parameters)).task_norm
