# SPDX-License-Identifier: Apache-2.0
import copy
import json
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests._asserts import assert_same_parameters, assert_same_trajectory, flat
from torch import Tensor, nn

from lerobot_craft import ConstraintConfig, RetentionConstraint, preset
from lerobot_craft.dual import Reference
from lerobot_craft.errors import RetentionError, SettingsError, StateError

CONSTANT = {"epsilon_schedule": "constant", "epsilon_start": 0.05, "retention_freq": 1}
OFF = {**CONSTANT, "use_grad_projection": False}


class Learner:
    """A small network with dropout, a task, and anchors labelled by its own first self."""

    def __init__(self, dtype: torch.dtype = torch.float32, batch: int = 16) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.5), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3)]
        self.model = nn.Sequential(*layers).to(dtype)
        generator = torch.Generator().manual_seed(1)
        self.inputs, self.anchors = torch.randn(2, 64, 6, generator=generator).to(dtype)
        self.targets = torch.randn(64, 3, generator=generator).to(dtype)
        with torch.no_grad():
            self.labels = copy.deepcopy(self.model).eval()(self.anchors)
        self.batch = batch
        self.wide = torch.promote_types(dtype, torch.float32)
        self.position = 0
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def task(self, step: int) -> Tensor:
        torch.manual_seed(step)  # the dropout of this step
        return nn.functional.mse_loss(self.model(self.inputs), self.targets)

    def retention(self) -> Tensor:
        rows = torch.arange(self.position, self.position + self.batch) % 64
        self.position += self.batch
        return nn.functional.mse_loss(self.model(self.anchors[rows]).to(self.wide), self.labels[rows].to(self.wide))

    def train(self, constraint: RetentionConstraint | None, steps: range, **options: bool) -> list[float]:
        multipliers = []
        for step in steps:
            self.optimizer.zero_grad()
            self.task(step).backward()
            if constraint is not None:
                multipliers.append(constraint.apply_(step, **options).floats()["multiplier"])
            self.optimizer.step()
        return multipliers


class ResumableTerm:
    """The learner's anchors, with their position saved."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def __call__(self) -> Tensor:
        return self.learner.retention()

    def state_dict(self) -> dict[str, int]:
        return {"position": self.learner.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.learner.position = state["position"]


def naive_step(learner: Learner, multiplier: float, threshold: float, mode: str) -> None:
    """Clone, zero, backward, clone, list arithmetic."""
    parameters = list(learner.model.parameters())
    task = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    learner.model.zero_grad()
    learner.model.eval()
    learner.retention().backward()
    learner.model.train()
    retention = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    g, r = flat(task, parameters), flat(retention, parameters)
    along = (g @ r) / (r @ r) if g @ r / (g.norm() * r.norm()) < threshold else 0.0
    a = 0.5 if mode == "equal" else 1.0
    weight = {"weighted": multiplier, "equal": 0.5, "task_priority": min(multiplier, 1.0)}[mode]
    for p, gi, ri in zip(parameters, task, retention, strict=True):
        p.grad = a * (gi - along * ri) + weight * ri


@pytest.mark.parametrize("mode", ["weighted", "equal", "task_priority"])
@pytest.mark.parametrize("projection", ["off", "always"])
def test_same_gradient_as_the_naive_version(mode: str, projection: str) -> None:
    ours, naive = Learner(torch.float64), Learner(torch.float64)
    for learner in (ours, naive):
        with torch.no_grad():
            for p in learner.model.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
        learner.task(0).backward()
    config = ConstraintConfig(
        **CONSTANT,
        merge_mode=mode,
        projection=projection,
        conflict_threshold=0.9,
        initial_lambda=2.5,
        lambda_controller="fixed",
    )
    RetentionConstraint(ours.model, ours.retention, config).apply_(0)
    naive_step(naive, 2.5, 0.9 if projection == "always" else -2.0, mode)
    for p, q in zip(ours.model.parameters(), naive.model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-12)


class Patchwork(nn.Module):
    """Parameters of which each loss may use any subset, and one that both name twice."""

    def __init__(self, count: int, task: set[int], retention: set[int]) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.randn(3, dtype=torch.float64)) for _ in range(count)])
        self.tied = self.parts[0]
        self.task_parts, self.retention_parts = task, retention

    def loss(self, parts: set[int], phase: float) -> Tensor:
        return sum((torch.sin((i + 1) * self.parts[i] + phase).sum() for i in parts), self.tied.sum() * 0.3)


@given(
    count=st.integers(1, 5),
    data=st.data(),
    multiplier=st.floats(0.0, 5.0),
    projection=st.sampled_from(["off", "always"]),
)
def test_same_as_naive_with_gradients_missing_on_either_side(
    count: int, data: st.DataObject, multiplier: float, projection: str
) -> None:
    subsets = st.sets(st.integers(0, count - 1))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    model = Patchwork(count, data.draw(subsets), data.draw(subsets))
    parameters = list(model.parameters())
    g = flat(torch.autograd.grad(model.loss(model.task_parts, 0.0), parameters, allow_unused=True), parameters)
    r = flat(torch.autograd.grad(model.loss(model.retention_parts, 2.0), parameters, allow_unused=True), parameters)
    conflict = projection == "always" and g @ r < -0.1 * g.norm() * r.norm()
    expected = g - (g @ r) / (r @ r) * r * conflict + multiplier * r
    model.loss(model.task_parts, 0.0).backward()
    config = ConstraintConfig(**CONSTANT, initial_lambda=multiplier, lambda_controller="fixed", projection=projection)
    RetentionConstraint(model, lambda: model.loss(model.retention_parts, 2.0), config).apply_(0)
    merged = flat([p.grad for p in parameters], parameters)
    torch.testing.assert_close(merged, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("statistics", [False, True])
def test_fixed_lambda_without_projection_is_one_backward_of_the_sum(*, statistics: bool) -> None:
    learner, other = Learner(torch.float64), Learner(torch.float64)
    config = ConstraintConfig(**OFF, lambda_controller="fixed", initial_lambda=3.0)
    learner.task(0).backward()
    RetentionConstraint(learner.model, learner.retention, config).apply_(0, statistics=statistics)
    task = other.task(0)
    other.model.eval()
    (task + 3.0 * other.retention()).backward()
    for p, q in zip(learner.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "config", [preset("plain"), ConstraintConfig(**OFF, lambda_controller="fixed", initial_lambda=0)]
)
def test_lambda_zero_without_projection_is_plain_training_bit_for_bit(config: ConstraintConfig) -> None:
    ours, plain = Learner(), Learner()
    # A parameter the task does not reach: zeros in its .grad would let weight decay move it.
    for learner in (ours, plain):
        learner.model.spare = nn.Parameter(torch.ones(3))
        learner.optimizer.add_param_group({"params": [learner.model.spare]})
    ours.train(RetentionConstraint(ours.model, ours.retention, config), range(30), statistics=True)
    plain.train(None, range(30))
    assert_same_parameters(ours.model, plain.model)


@pytest.mark.parametrize(
    "settings",
    [
        {"lambda_controller": "dual", "projection": "violated"},
        {"lambda_controller": "pi", "projection": "off", "violation_ema": 0.9},
        {"epsilon_units": "relative", "epsilon_start": 0.2, "max_retention_ratio": 2.0, "retention_freq": 3},
    ],
)
def test_a_hundred_steps_equal_fifty_and_fifty_after_loading(settings: dict[str, object]) -> None:
    config = ConstraintConfig(**{**CONSTANT, "lambda_lr": 0.5, **settings})

    def make() -> tuple[Learner, RetentionConstraint]:
        learner = Learner()
        with torch.no_grad():  # away from the teacher, so that a relative budget has a scale
            learner.labels = learner.labels + 0.1
        return learner, RetentionConstraint(learner.model, ResumableTerm(learner), config)

    whole, constraint = make()
    multipliers = whole.train(constraint, range(100))
    first, constraint = make()
    seen = first.train(constraint, range(50))
    saved = json.loads(json.dumps(constraint.state_dict()))
    second, resumed = make()
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    resumed.load_state_dict(saved)
    seen += second.train(resumed, range(50, 100))
    assert_same_trajectory(seen, multipliers)
    assert_same_parameters(second.model, whole.model)
    assert len(set(multipliers)) >= 10


def test_state_of_a_term_with_and_without_state_do_not_mix() -> None:
    learner = Learner()
    stateful = RetentionConstraint(learner.model, ResumableTerm(learner), ConstraintConfig(**CONSTANT))
    stateless = RetentionConstraint(learner.model, learner.retention, ConstraintConfig(**CONSTANT))
    with pytest.raises(StateError, match="resume with the retention mode that was saved"):
        stateless.load_state_dict(stateful.state_dict())
    with pytest.raises(StateError, match="version 99"):
        stateless.load_state_dict({**stateless.state_dict(), "version": 99})


def test_cheap_and_separate_path_take_the_same_steps() -> None:
    config = ConstraintConfig(**OFF, lambda_lr=0.5)
    cheap, separate = Learner(torch.float64), Learner(torch.float64)
    cheap_lambda = cheap.train(RetentionConstraint(cheap.model, cheap.retention, config), range(30))
    other_lambda = separate.train(
        RetentionConstraint(separate.model, separate.retention, config), range(30), statistics=True
    )
    assert cheap_lambda == pytest.approx(other_lambda, rel=1e-9)


def test_statistics_only_where_asked_for() -> None:
    learner = Learner()
    constraint = RetentionConstraint(learner.model, learner.retention, ConstraintConfig(**OFF))
    learner.train(constraint, range(3))
    learner.task(3).backward()
    assert torch.isnan(constraint.apply_(3).cosine)
    report = constraint.apply_(4, statistics=True).floats()
    assert -1 <= report["cosine"] <= 1
    assert report["retention_norm"] > 0


def test_conflict_follows_the_cosine_not_the_dot_product() -> None:
    """A dot product of -10⁴ with a cosine near 0 is no conflict; one of -10⁻⁸ at a cosine of -1 is."""

    def report_for(g: Tensor, r: Tensor) -> dict[str, float]:
        model = nn.ParameterList([nn.Parameter(torch.zeros(2))])
        model[0].grad = g
        constraint = RetentionConstraint(model, lambda: (model[0] * r).sum(), ConstraintConfig(**CONSTANT))
        return constraint.apply_(0).floats()

    large = report_for(torch.tensor([1e6, -1.0]), torch.tensor([0.0, 1e4]))
    assert large["dot"] == pytest.approx(-1e4)
    assert large["conflict"] == 0.0
    small = report_for(torch.tensor([1e-4, 0.0]), torch.tensor([-1e-4, 0.0]))
    assert small["dot"] == pytest.approx(-1e-8)
    assert small["conflict"] == 1.0


def test_projection_waits_for_a_violation() -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(2))])

    def merged(epsilon: float) -> list[float]:
        model[0].grad = torch.tensor([-3.0, 5.0])
        config = ConstraintConfig(
            **{**CONSTANT, "epsilon_start": epsilon}, lambda_controller="fixed", initial_lambda=0, projection="violated"
        )
        RetentionConstraint(model, lambda: model[0][0], config).apply_(0)
        return model[0].grad.tolist()

    assert merged(epsilon=2.0) == [-3.0, 5.0]
    assert merged(epsilon=0.5) == [0.0, 5.0]


def test_retention_runs_every_k_steps_and_can_be_scaled_by_k() -> None:
    def gradients(**settings: object) -> list[float]:
        model = nn.ParameterList([nn.Parameter(torch.zeros(()))])
        config = ConstraintConfig(**{**OFF, "retention_freq": 3, "lambda_controller": "fixed", **settings})
        constraint = RetentionConstraint(model, lambda: model[0] * 2.0, config)
        seen = []
        for step in range(7):
            model[0].grad = torch.tensor(1.0)
            report = constraint.apply_(step)
            assert report.retained == (step % 3 == 0)
            seen.append(model[0].grad.item())
        return seen

    assert gradients() == [3.0, 1.0, 1.0, 3.0, 1.0, 1.0, 3.0]
    assert gradients(scale_by_freq=True) == [7.0, 1.0, 1.0, 7.0, 1.0, 1.0, 7.0]


def test_the_bound_keeps_a_budget_out_of_reach_from_drowning_the_task() -> None:
    """ε = 0 can never be met with noisy anchors; λ stops at the bound instead of its maximum."""
    learner = Learner(batch=4)
    settings = {**CONSTANT, "epsilon_start": 0.0, "lambda_lr": 50.0, "lambda_max": 1e6, "use_grad_projection": False}
    constraint = RetentionConstraint(
        learner.model, learner.retention, ConstraintConfig(**settings, max_retention_ratio=1.5)
    )
    for step in range(60):
        learner.optimizer.zero_grad()
        learner.task(step).backward()
        before = flat([p.grad for p in learner.model.parameters()], list(learner.model.parameters()))
        report = constraint.apply_(step)
        after = flat([p.grad for p in learner.model.parameters()], list(learner.model.parameters()))
        assert (after - before).norm() <= 1.5 * before.norm() * (1 + 1e-5)
        learner.optimizer.step()
    assert report.floats()["bounded"] == 1.0
    assert report.floats()["multiplier"] < 1e3


def test_relative_budget_of_a_term_that_knows_its_reference() -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(()))])

    class Known:
        def __call__(self) -> Tensor:
            return model[0] * 3.0

        def reference(self) -> Reference:
            return Reference(floor=2.0, scale=4.0)

    config = ConstraintConfig(**{**CONSTANT, "epsilon_units": "relative", "epsilon_start": 0.125}, lambda_lr=1.0)
    constraint = RetentionConstraint(model, Known(), config)
    model[0].grad = torch.zeros(())
    report = constraint.apply_(0).floats()
    assert report["epsilon"] == 2.5
    assert report["violation"] == pytest.approx((3.0 - 2.5) / 4.0)
    assert constraint.multiplier.value.item() == pytest.approx(1.125)


def test_relative_budget_of_any_other_term_is_measured_at_the_start() -> None:
    learner = Learner()
    learner.labels = learner.labels + 1.0
    config = ConstraintConfig(**{**CONSTANT, "epsilon_units": "relative", "epsilon_start": 0.5})
    constraint = RetentionConstraint(learner.model, learner.retention, config)
    learner.task(0).backward()
    assert constraint.apply_(0).epsilon == pytest.approx(1.5, rel=1e-5)  # every anchor is off by 1: the loss is 1


def test_relative_budget_without_anything_to_measure_is_refused() -> None:
    learner = Learner()
    config = ConstraintConfig(**{**CONSTANT, "epsilon_units": "relative"})
    with pytest.raises(SettingsError, match="give it a `reference\\(\\)`"):
        RetentionConstraint(learner.model, learner.retention, config).calibrate()


@pytest.mark.parametrize("projection", ["off", "always"])
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_retention_gradient_that_is_not_finite_is_dropped_counted_and_said(projection: str, what: str) -> None:
    model = nn.ParameterList([nn.Parameter(torch.tensor([1.0, 0.0]))])
    constraint = RetentionConstraint(
        model,
        # The gradient of a square root at 0 is infinite, its value is 0.
        lambda: model[0].sqrt().sum() if what == "gradient" else model[0].sum() * torch.nan,
        ConstraintConfig(**CONSTANT, projection=projection),
    )
    model[0].grad = torch.tensor([3.0, 4.0])
    report = constraint.apply_(0)
    with pytest.warns(RuntimeWarning, match="was not finite and was dropped"):
        assert report.floats()["dropped"] == 1.0
    assert torch.isfinite(model[0].grad).all()
    assert model[0].grad[1] == 4.0
    if projection == "always" or what == "loss":
        assert model[0].grad.tolist() == [3.0, 4.0]
    assert constraint.multiplier.value.item() == 1.0


@pytest.mark.parametrize("projection", ["off", "always"])
def test_a_task_gradient_that_is_not_finite_is_left_for_the_scaler_and_lambda_rests(projection: str) -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(2))])
    config = ConstraintConfig(**CONSTANT, projection=projection, loss_scale=1024.0)
    constraint = RetentionConstraint(model, lambda: model[0].sum(), config)
    model[0].grad = torch.tensor([torch.inf, 1.0])
    constraint.apply_(0)
    assert not torch.isfinite(model[0].grad).all()
    assert constraint.multiplier.value.item() == 1.0


@pytest.mark.parametrize("projection", ["off", "always"])
def test_gradient_scaler_order(projection: str) -> None:
    """Surgery on unscaled gradients gives the steps of a run without scaler; a skipped step moves neither θ nor λ."""
    config = {**CONSTANT, "projection": projection, "lambda_lr": 0.5}
    scaled, plain = Learner(), Learner()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    constraint = RetentionConstraint(scaled.model, scaled.retention, ConstraintConfig(**config, loss_scale=2.0**10))
    for step in range(20):
        scaled.optimizer.zero_grad()
        scaler.scale(scaled.task(step)).backward()
        scaler.unscale_(scaled.optimizer)
        constraint.apply_(step)
        nn.utils.clip_grad_norm_(scaled.model.parameters(), 1.0)
        scaler.step(scaled.optimizer)
        scaler.update()
    reference = RetentionConstraint(plain.model, plain.retention, ConstraintConfig(**config))
    for step in range(20):
        plain.optimizer.zero_grad()
        plain.task(step).backward()
        reference.apply_(step)
        nn.utils.clip_grad_norm_(plain.model.parameters(), 1.0)
        plain.optimizer.step()
    assert constraint.multiplier.value.item() == pytest.approx(reference.multiplier.value.item(), rel=1e-4)
    for p, q in zip(scaled.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    before = copy.deepcopy(scaled.model)
    multiplier = constraint.multiplier.value.item()
    scaled.optimizer.zero_grad()
    scaler.scale(scaled.task(20) * torch.inf).backward()
    scaler.unscale_(scaled.optimizer)
    constraint.apply_(20)
    scaler.step(scaled.optimizer)
    assert_same_parameters(scaled.model, before)
    assert constraint.multiplier.value.item() == multiplier


def test_loss_scale_saves_float16_from_underflow_and_halves_on_overflow() -> None:
    def run(loss_scale: float, factor: float) -> tuple[Tensor, RetentionConstraint]:
        model = nn.ParameterList([nn.Parameter(torch.ones(4, dtype=torch.float16))])
        model[0].grad = torch.zeros(4, dtype=torch.float16)
        constraint = RetentionConstraint(
            model,
            lambda: (model[0] * torch.tensor(factor, dtype=torch.float16)).float().sum() * 1e-3,
            ConstraintConfig(**OFF, loss_scale=loss_scale),
        )
        constraint.apply_(0)
        return model[0].grad, constraint

    lost, _ = run(1.0, 1e-5)  # 1e-8 is below the smallest float16
    assert lost.abs().max() == 0
    kept, _ = run(65536.0, 1e-3)
    assert kept.tolist() == pytest.approx([1e-6] * 4, rel=0.05)
    _, constraint = run(65536.0 * 1024, 1e3)
    with pytest.warns(RuntimeWarning, match="not finite"):
        assert constraint.state_dict()["loss_scale"] == 65536.0 * 512


def test_gradient_accumulation_order() -> None:
    """Micro-batches first, `apply_` once: the same as one large batch."""
    whole, parts = Learner(torch.float64), Learner(torch.float64)
    config = ConstraintConfig(**CONSTANT)
    for learner in (whole, parts):
        learner.model.eval()
    nn.functional.mse_loss(whole.model(whole.inputs), whole.targets).backward()
    for rows in torch.arange(64).split(16):
        (nn.functional.mse_loss(parts.model(parts.inputs[rows]), parts.targets[rows]) / 4).backward()
    for learner in (whole, parts):
        RetentionConstraint(learner.model, learner.retention, config).apply_(0)
    for p, q in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-14)


def test_anchors_run_in_eval_mode_and_every_module_gets_its_own_mode_back() -> None:
    learner = Learner()
    learner.model[0].eval()
    modes = [module.training for module in learner.model.modules()]
    constraint = RetentionConstraint(learner.model, learner.retention, ConstraintConfig(**CONSTANT))
    learner.task(0).backward()
    assert constraint.apply_(0).floats()["retention_loss"] == 0.0  # with dropout the teacher would differ from itself
    assert [module.training for module in learner.model.modules()] == modes


@pytest.mark.parametrize("projection", ["off", "always"])
def test_frozen_parameters_stay_without_gradient(projection: str) -> None:
    learner = Learner()
    learner.model[0].requires_grad_(False)
    learner.task(0).backward()
    config = ConstraintConfig(**CONSTANT, projection=projection)
    RetentionConstraint(learner.model, learner.retention, config).apply_(0)
    assert learner.model[0].weight.grad is None
    assert learner.model[3].weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("projection", ["off", "violated"])
def test_low_precision_weights_train(dtype: torch.dtype, projection: str) -> None:
    learner = Learner(dtype)
    learner.optimizer = torch.optim.SGD(
        [{"params": learner.model[0].parameters(), "lr": 1e-2}, {"params": learner.model[3:].parameters(), "lr": 1e-3}]
    )
    config = ConstraintConfig(**CONSTANT, projection=projection)
    constraint = RetentionConstraint(learner.model, learner.retention, config)
    learner.train(constraint, range(20))
    assert all(p.grad is not None and p.grad.dtype == dtype for p in learner.model.parameters())
    assert all(torch.isfinite(p).all() for p in learner.model.parameters())


def test_sparse_embedding_gradients() -> None:
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    start = table.weight.detach().clone()
    constraint = RetentionConstraint(
        table,
        lambda: (table(torch.tensor([7])) - start[7]).square().sum(),
        ConstraintConfig(**CONSTANT, initial_lambda=10.0),
    )
    for step in range(20):
        optimizer.zero_grad()
        (table(torch.tensor([2, 7])) - 1.0).square().sum().backward()
        constraint.apply_(step)
        optimizer.step()
    assert table.weight.grad is not None
    assert table.weight.grad.is_sparse
    assert (table.weight[2] - 1.0).norm() < (start[2] - 1.0).norm()
    assert (table.weight[7] - start[7]).norm() < 0.5 * (start[7] - 1.0).norm()


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (lambda model: model[0].weight.sum(dim=0), r"shape \[6\]"),
        (lambda model: model[0].weight.detach().sum(), "requires_grad=False"),
    ],
)
def test_a_loss_that_cannot_be_used_is_refused(term: Callable[[nn.Module], Tensor], message: str) -> None:
    learner = Learner()
    constraint = RetentionConstraint(learner.model, lambda: term(learner.model), ConstraintConfig(**CONSTANT))
    with pytest.raises(RetentionError, match=message):
        constraint.apply_(0)


@pytest.mark.parametrize("projection", ["off", "always"])
def test_a_loss_that_reaches_no_parameter_is_refused(projection: str) -> None:
    learner, stranger = Learner(), nn.Parameter(torch.ones(()))
    config = ConstraintConfig(**CONSTANT, projection=projection)
    learner.task(0).backward()
    with pytest.raises(RetentionError, match="none of the trainable parameters"):
        RetentionConstraint(learner.model, lambda: stranger * 2, config).apply_(0)


def test_a_decay_of_unknown_length_is_refused() -> None:
    with pytest.raises(SettingsError, match="pass `total_steps=…`"):
        RetentionConstraint(nn.Linear(1, 1), lambda: torch.zeros(()), ConstraintConfig())


def test_the_same_trajectory_as_cooper() -> None:
    """Dual ascent on the Lagrangian, stepped simultaneously with SGD, in float64."""
    import cooper

    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            self.norm = cooper.Constraint(
                constraint_type=cooper.ConstraintType.INEQUALITY,
                formulation_type=cooper.formulations.Lagrangian,
                multiplier=cooper.multipliers.DenseMultiplier(init=torch.ones(1), dtype=torch.float64),
            )

        def compute_cmp_state(self, theta: nn.Parameter) -> cooper.CMPState:
            state = cooper.ConstraintState(violation=(theta.square().sum() - 0.5).reshape(1))
            return cooper.CMPState(loss=(theta - 2.0).square().sum(), observed_constraints={self.norm: state})

    problem = Problem()
    theta = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=problem,
        primal_optimizers=torch.optim.SGD([theta], lr=0.02),
        dual_optimizers=torch.optim.SGD(problem.dual_parameters(), lr=0.1, maximize=True),
    )
    model = nn.ParameterList([nn.Parameter(torch.zeros(3, dtype=torch.float64))])
    ours = model[0]
    constraint = RetentionConstraint(
        model,
        lambda: ours.square().sum(),
        ConstraintConfig(**{**OFF, "epsilon_start": 0.5}, lambda_lr=0.1, lambda_max=1e9),
    )
    sgd = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(300):
        optimizer.roll(compute_cmp_state_kwargs={"theta": theta})
        sgd.zero_grad()
        (ours - 2.0).square().sum().backward()
        constraint.apply_(step)
        sgd.step()
        torch.testing.assert_close(ours, theta, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(
            constraint.multiplier.value, problem.norm.multiplier.weight.squeeze(), rtol=1e-10, atol=0
        )
    assert ours.square().sum().item() == pytest.approx(0.5, rel=0.01)


def test_joined_losses_train_as_two_passes_do() -> None:
    settings = {**OFF, "lambda_controller": "pi", "lambda_lr": 0.5, "epsilon_start": 0.001, "violation_ema": 0.5}
    apart, together = Learner(torch.float64), Learner(torch.float64)
    for learner in (apart, together):
        # Dropout has no place in one pass: the anchors are to run without.
        learner.model.eval()
    constraints = [
        RetentionConstraint(each.model, each.retention, ConstraintConfig(**settings)) for each in (apart, together)
    ]
    multipliers = apart.train(constraints[0], range(20))
    joined = []
    for step in range(20):
        together.optimizer.zero_grad()
        assert constraints[1].joins(step)
        total, report = constraints[1].join(step, together.task(step), together.retention())
        total.backward()
        together.optimizer.step()
        joined.append(report.floats()["multiplier"])
    assert joined == pytest.approx(multipliers, rel=1e-9)
    assert joined[-1] > joined[0], "λ moves, so agreement says something"
    for one, two in zip(together.model.parameters(), apart.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "step", "statistics"),
    [
        ({}, 1, True),
        ({"retention_freq": 5}, 1, False),
        ({"use_grad_projection": True}, 1, False),
        ({"max_retention_ratio": 4.0}, 1, False),
        ({"merge_mode": "equal"}, 1, False),
        ({"loss_scale": 65536.0}, 1, False),
        ({"lambda_controller": "fixed", "initial_lambda": 0.0}, 1, False),
    ],
)
def test_what_needs_more_than_a_sum_is_not_joined(changes: dict[str, object], step: int, *, statistics: bool) -> None:
    learner = Learner()
    assert RetentionConstraint(learner.model, learner.retention, ConstraintConfig(**OFF)).joins(step)
    config = ConstraintConfig(**{**OFF, **changes})
    assert not RetentionConstraint(learner.model, learner.retention, config).joins(step, statistics=statistics)


class PreparingTerm(ResumableTerm):
    """Counts how often it was asked to prepare."""

    asked = 0

    def look_ahead(self) -> None:
        self.asked += 1

    def reference(self) -> Reference:
        return Reference(0.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({}, 6),
        ({"retention_freq": 3}, 2),
        ({"epsilon_units": "relative"}, 6),
        ({"lambda_controller": "fixed", "initial_lambda": 0.0}, 0),
    ],
)
def test_a_term_prepares_for_the_steps_in_which_it_is_needed(changes: dict[str, object], asked: int) -> None:
    learner = Learner()
    term = PreparingTerm(learner)
    constraint = RetentionConstraint(learner.model, term, ConstraintConfig(**{**OFF, **changes}))
    for step in range(1, 7):
        learner.train(constraint, range(step, step + 1))
        constraint.look_ahead(step + 1)
    assert term.asked == asked


def test_nothing_is_prepared_before_the_reference_is_known() -> None:
    learner = Learner()
    term = PreparingTerm(learner)
    constraint = RetentionConstraint(learner.model, term, ConstraintConfig(**OFF, epsilon_units="relative"))
    constraint.look_ahead(1)
    assert term.asked == 0
    constraint.calibrate()
    constraint.look_ahead(1)
    assert term.asked == 1


def test_a_term_that_cannot_prepare_is_not_asked() -> None:
    learner = Learner()
    RetentionConstraint(learner.model, learner.retention, ConstraintConfig(**OFF)).look_ahead(1)
    assert learner.position == 0
