# SPDX-License-Identifier: Apache-2.0
"""A constrained problem with a known optimum: what projection and the λ controller do to peak and result.

Minimise a 50-dimensional quadratic subject to another one staying below ε, starting at the other's minimum (the
student starts as the teacher), with noise on both gradients. The optimum is found by bisection on λ. Per setting the
script prints the peak of L_retain along the run, and L_retain and the excess of the task loss at the mean of the last
tenth of the iterates, so that they tell where a run goes rather than how far SGD jitters around it. Ranges are over
the seeds.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from _figures import parser, write_figures
from lerobot_craft import ConstraintConfig, RetentionConstraint

DIM = 50
EPSILON = 0.5
STEPS = 2000
LR = 0.02
NOISES = (0.0, 0.1, 0.5, 2.0)
CONTROLLERS = {
    "dual": {"lambda_controller": "dual", "lambda_lr": 0.02},
    "pi": {"lambda_controller": "pi", "lambda_lr": 0.02, "lambda_kp": 5.0, "violation_ema": 0.0},
}


class Problem(NamedTuple):
    """½(θ − target)ᵀA(θ − target) subject to ½(θ − start)ᵀB(θ − start) ≤ ε."""

    task_matrix: Tensor
    target: Tensor
    retention_matrix: Tensor
    start: Tensor

    def task(self, theta: Tensor) -> Tensor:
        """Return the task loss."""
        return 0.5 * (theta - self.target) @ self.task_matrix @ (theta - self.target)

    def retention(self, theta: Tensor) -> Tensor:
        """Return the retention loss."""
        return 0.5 * (theta - self.start) @ self.retention_matrix @ (theta - self.start)

    def optimum(self) -> tuple[float, float]:
        """Return λ* and the task loss at the constrained optimum, by bisection."""
        low, high = 0.0, 1e4
        theta = self.target
        for _ in range(200):
            middle = (low + high) / 2
            theta = torch.linalg.solve(
                self.task_matrix + middle * self.retention_matrix,
                self.task_matrix @ self.target + middle * self.retention_matrix @ self.start,
            )
            low, high = (middle, high) if self.retention(theta) > EPSILON else (low, middle)
        return middle, self.task(theta).item()


class Outcome(NamedTuple):
    """What one run came to."""

    peak: float
    final: float
    excess: float


def make_problem(seed: int) -> Problem:
    """Draw two quadratics with eigenvalues from 0.1 to 1 in unrelated bases."""
    generator = torch.Generator().manual_seed(seed)

    def quadratic() -> Tensor:
        basis, _ = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64))
        return basis @ torch.diag(torch.logspace(-1, 0, DIM, dtype=torch.float64)) @ basis.T

    start, offset = torch.randn(2, DIM, generator=generator, dtype=torch.float64)
    return Problem(quadratic(), start + offset, quadratic(), start)


def run(seed: int, noise: float, settings: dict[str, object], steps: int = STEPS) -> Outcome:
    """Run SGD under the constraint and compare with the optimum."""
    problem = make_problem(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    model = nn.ParameterList([nn.Parameter(problem.start.clone())])
    theta = model[0]

    def jolt() -> Tensor:
        return noise * torch.randn(DIM, generator=generator, dtype=torch.float64) / DIM**0.5

    # The noise enters the gradient only, as <θ, jolt> with the value taken off again.
    def noisy_retention() -> Tensor:
        shift = theta @ jolt()
        return problem.retention(theta) + shift - shift.detach()

    config = ConstraintConfig(
        epsilon_start=EPSILON, epsilon_schedule="constant", retention_freq=1, lambda_max=100.0, **settings
    )
    constraint = RetentionConstraint(model, noisy_retention, config)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    retentions = []
    tail = steps // 10
    mean = torch.zeros_like(problem.start)
    for step in range(steps):
        optimizer.zero_grad()
        (problem.task(theta) + theta @ jolt()).backward()
        constraint.apply_(step)
        optimizer.step()
        retentions.append(problem.retention(theta).item() / EPSILON)
        if step >= steps - tail:
            mean += theta.detach() / tail
    final, excess = problem.retention(mean).item() / EPSILON, problem.task(mean).item() / problem.optimum()[1] - 1
    return Outcome(max(retentions), final, excess)


def spread(values: list[float], form: str) -> str:
    """Return the range of values, or the one value where they agree to the digits shown."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def main() -> None:
    """Print the table."""
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--steps", type=int, default=STEPS)
    arguments = made.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, dict[str, object]] = {}
    for seed in range(arguments.seeds):
        multiplier, best = make_problem(seed).optimum()
        print(f"seed {seed}: optimum at λ = {multiplier:.2f} with task loss {best:.3f}")
    print(f"{arguments.seeds} seeds, {arguments.steps} steps; range over seeds\n")
    print("| projection | λ | noise | peak L_ret / ε | final L_ret / ε | task loss above optimum |")
    print("|---|---|---|---|---|---|")
    for projection in ("off", "always", "violated"):
        for controller, settings in CONTROLLERS.items():
            for noise in NOISES:
                outcomes = [
                    run(seed, noise, {"projection": projection, **settings}, arguments.steps)
                    for seed in range(arguments.seeds)
                ]
                peaks, finals, excesses = (list(column) for column in zip(*outcomes, strict=True))
                print(
                    f"| {projection} | {controller} | {noise} | {spread(peaks, '.2f')} | {spread(finals, '.2f')} "
                    f"| {spread(excesses, '+.1%')} |"
                )
                figures[f"{projection}.{controller}.{noise}"] = {
                    "peak_over_epsilon": peaks,
                    "final_over_epsilon": finals,
                    "task_loss_above_optimum": excesses,
                }
    write_figures(arguments.json, figures)


if __name__ == "__main__":
    main()
