# SPDX-License-Identifier: Apache-2.0
"""What the constrained step costs over the bare anchor pass, in time and in memory.

Rows, all with the same model, batches and optimizer:
  plain    a training step without retention
  floor    plain, plus the forward and backward pass of the anchors and nothing else
  craft    ours with projection: a separate retention gradient, products, one fused merge
  cheap    ours without projection: λ·L_retain goes straight into .grad
  naive    clone, zero, backward, clone, list arithmetic, as prototypes do it
  torchjd  TorchJD's backward of both losses, then PCGrad

Times are ratios to the floor within the same round, the median over rounds, since machines are noisy. Memory is the
peak that torch's allocator held within a step, above the floor's, in units of one copy of the gradients, with so few
rows that activations do not matter.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from _figures import parser, write_figures
from lerobot_craft import ConstraintConfig, RetentionConstraint

# So few that activations cannot hide a copy of the gradients.
MEMORY_ROWS = 8
ROWS = ("plain", "floor", "craft", "cheap", "naive", "torchjd")


class Setup(NamedTuple):
    """One model with its optimizer and its two losses."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    task: Callable[[], Tensor]
    anchors: Callable[[], Tensor]

    def step(self, add_retention: Callable[[], object]) -> None:
        """Run one training step with something between `backward()` and `step()`."""
        self.optimizer.zero_grad()
        self.task().backward()
        add_retention()
        self.optimizer.step()


def make_setup(device: str, width: int, depth: int, rows: int) -> Setup:
    """Build a residual-free GELU network of `depth` square layers and two regression batches."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    inputs, targets, anchor_inputs, anchor_targets = torch.randn(4, rows, width, device=device)
    # SGD, so that the optimizer does not hide the differences behind its own passes over memory.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    return Setup(
        model,
        optimizer,
        lambda: nn.functional.mse_loss(model(inputs), targets),
        lambda: nn.functional.mse_loss(model(anchor_inputs), anchor_targets),
    )


def make_step(row: str, setup: Setup) -> Callable[[], None]:
    """Return one training step of this row."""
    match row:
        case "plain":
            return lambda: setup.step(lambda: None)
        case "floor":
            return lambda: setup.step(lambda: setup.anchors().backward())
        case "craft" | "cheap":
            config = ConstraintConfig(
                retention_freq=1,
                epsilon_start=0.01,
                epsilon_schedule="constant",
                projection="violated" if row == "craft" else "off",
            )
            constraint = RetentionConstraint(setup.model, setup.anchors, config)
            return lambda: setup.step(lambda: constraint.apply_(0))
        case "naive":
            return lambda: naive_step(setup)
        case _:
            return lambda: torchjd_step(setup)


def naive_step(setup: Setup) -> None:
    """Do the surgery on lists of clones."""
    setup.optimizer.zero_grad()
    setup.task().backward()
    naive_surgery([p for p in setup.model.parameters() if p.requires_grad], setup.optimizer, setup.anchors)
    setup.optimizer.step()


def naive_surgery(
    parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, anchors: Callable[[], Tensor]
) -> None:
    """Project and merge as prototypes do: the task gradient is in `.grad`, and so is the result."""
    task = _clones(parameters)
    optimizer.zero_grad()
    anchors().backward()
    retention = _clones(parameters)
    dot = sum((g * r).sum() for g, r in zip(task, retention, strict=True))
    squared = sum((r * r).sum() for r in retention)
    length = torch.sqrt(sum((g * g).sum() for g in task)) * torch.sqrt(squared)
    if (dot / length).item() < -0.1:
        task = [g - dot / squared * r for g, r in zip(task, retention, strict=True)]
    for p, merged in zip(parameters, [g + 1.0 * r for g, r in zip(task, retention, strict=True)], strict=True):
        p.grad = merged


def _clones(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]


def torchjd_step(setup: Setup) -> None:
    """Let TorchJD build both rows of the Jacobian and aggregate them."""
    from torchjd.aggregation import PCGrad
    from torchjd.autojac import backward, jac_to_grad

    setup.optimizer.zero_grad()
    # One row at a time: the two losses come from different batches, so there is nothing to vectorise over.
    backward([setup.task(), setup.anchors()], parallel_chunk_size=1)
    jac_to_grad(setup.model.parameters(), PCGrad(), optimize_gramian_computation=True)
    setup.optimizer.step()


def peak_bytes(row: str, setup: Setup, device: str) -> int:
    """Return the most memory that torch's allocator held at any moment of one step, above where it began."""
    step = make_step(row, setup)
    step()
    # What is freed inside must have been allocated inside, or the profiler's balance is off.
    setup.optimizer.zero_grad()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - held
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        step()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes))


def ratios_to_floor(setup: Setup, rounds: int, device: str) -> dict[str, list[float]]:
    """Time one step of every row per round, in turn, and divide by the floor of the same round."""
    steps = {row: make_step(row, setup) for row in ROWS}
    # On a CPU the time this process really ran: other processes then cost cache, but not seconds.
    clock = time.perf_counter if device == "cuda" else time.process_time

    def timed(row: str) -> float:
        began = clock()
        steps[row]()
        if device == "cuda":
            torch.cuda.synchronize()
        return clock() - began

    for row in ROWS:
        timed(row)
    ratios: dict[str, list[float]] = {row: [] for row in ROWS}
    for turn in range(rounds):
        # Another row leads each round, so that none is always the one after the most cache-hungry.
        order = ROWS[turn % len(ROWS) :] + ROWS[: turn % len(ROWS)]
        # The floor is timed twice, around the others: a drift of the machine cancels to first order.
        before = timed("floor")
        seconds = {row: timed(row) for row in order}
        floor = (before + seconds["floor"] + timed("floor")) / 3
        for row in ROWS:
            ratios[row].append(seconds[row] / floor)
    return ratios


def main() -> None:
    """Print the table."""
    made = parser(__doc__)
    made.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    made.add_argument("--width", type=int, default=1024)
    made.add_argument("--depth", type=int, default=12)
    made.add_argument(
        "--rows", type=int, default=512, help="samples × tokens, of the task batch and the anchor batch alike"
    )
    made.add_argument("--rounds", type=int, default=16)
    arguments = made.parse_args()
    torch.set_num_threads(1)
    setup = make_setup(arguments.device, arguments.width, arguments.depth, arguments.rows)
    size = sum(p.numel() for p in setup.model.parameters())
    copy_bytes = 4 * size
    print(f"{size / 1e6:.1f} M parameters, one gradient copy {copy_bytes / 2**20:.0f} MiB, {arguments.rounds} rounds\n")
    lean = make_setup(arguments.device, arguments.width, arguments.depth, MEMORY_ROWS)
    peaks = {row: peak_bytes(row, lean, arguments.device) for row in ROWS}
    ratios = ratios_to_floor(setup, arguments.rounds, arguments.device)
    figures = {}
    print("| row | time / floor | quartiles | extra gradient copies |\n|---|---|---|---|")
    for row in ROWS:
        low, middle, high = statistics.quantiles(ratios[row], n=4)
        copies = (peaks[row] - peaks["floor"]) / copy_bytes
        print(f"| {row} | {middle:.3f} | {low:.3f} to {high:.3f} | {copies:+.2f} |")
        figures[row] = {"ratio_to_floor": middle, "extra_gradient_copies": copies}
    write_figures(arguments.json, figures)


if __name__ == "__main__":
    main()
