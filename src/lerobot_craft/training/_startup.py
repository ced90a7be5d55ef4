# SPDX-License-Identifier: Apache-2.0
"""What a run says before its first step: settings, parameters, memory; measures nothing but sizes."""

from collections.abc import Collection

import torch
from torch import nn
from torch.optim import Optimizer

from lerobot_craft.surgery import Projection
from lerobot_craft.training._build import Run
from lerobot_craft.training._compat import format_big_number

RULE = "=" * 60
FEWEST_MODULES = 4


def settings_block(run: Run, anchors: int | None, source: str) -> str:
    """Return the block that says CRaFT is on, and how.

    Args:
        run: The run.
        anchors: How many anchors were loaded; None where the mode needs none.
        source: Where they, or what else is retained, come from.
    """
    craft = run.craft
    projection = craft.active_projection
    lines = {
        "CRaFT": "enabled",
        # Without one the settings are CRaFT's as first specified, which did not retain (docs/comparison.md).
        "Preset": craft.preset or "none; `--craft.preset=craft` has the settings that retain best",
        "Retention Mode": craft.retention_mode,
        "Anchors loaded": f"none needed ({source})" if anchors is None else f"{anchors} ({source})",
        "Anchor batch size": str(craft.anchors_beside(run.cfg.batch_size)),
        "Retention every": f"{craft.retention_freq} step(s)",
        "λ controller": craft.lambda_controller,
        "Initial λ": f"{craft.initial_lambda:g}",
        "λ learning rate": f"{craft.lambda_lr:g}",
        "λ maximum": f"{craft.lambda_max:g}",
        "ε start": f"{craft.epsilon_start:g}",
        "ε end": f"{craft.epsilon_end:g}",
        "ε schedule": f"{craft.epsilon_schedule}, {craft.epsilon_units} units",
        "Gradient projection": "off" if projection is Projection.OFF else f"on ({projection})",
        "Conflict threshold": f"{craft.conflict_threshold:g} (cosine)",
        "Merge mode": craft.merge_mode,
        "Normalization": craft.normalization,
    }
    return "\n".join([RULE, *(f"{name + ':':<22}{value}" for name, value in lines.items()), RULE])


def parameter_table(model: nn.Module, behind_tap: Collection[str] | None) -> str:
    """Return the trainable parameters by module, and how many of them lie behind the tap.

    Args:
        model: The policy.
        behind_tap: Names of the parameters behind the tap; None where the mode has no tap.
    """
    depth = _useful_depth([name for name, _ in model.named_parameters()])
    rows: dict[str, list[int]] = {}
    for name, parameter in model.named_parameters():
        counts = rows.setdefault(_module_of(name, depth), [0, 0, 0])
        counts[0] += parameter.numel()
        if parameter.requires_grad:
            counts[1] += parameter.numel()
            counts[2] += parameter.numel() if behind_tap is not None and name in behind_tap else 0
    totals = [sum(counts[i] for counts in rows.values()) for i in range(3)]
    width = max([len(name) for name in rows] + [5])
    header = f"{'Parameters':<{width}}  {'all':>8}  {'trained':>8}" + ("" if behind_tap is None else "  behind tap")
    lines = [header]
    for name, (size, trained, behind) in [*rows.items(), ("total", totals)]:
        line = f"{name:<{width}}  {format_big_number(size):>8}  {format_big_number(trained):>8}"
        lines.append(line if behind_tap is None else f"{line}  {format_big_number(behind):>10}")
    if behind_tap is not None and totals[2] > 0:
        lines.append(
            f"Warning: {totals[2]:,} trained parameters lie behind the tap. Hidden retention protects behaviour only "
            "if they do not move: pass `--craft.freeze_behind_tap=true`, or use `--craft.retention_mode=action`."
        )
    return "\n".join(lines)


def memory_estimate(model: nn.Module, optimizer: Optimizer, *, separate_gradient: bool) -> str:
    """Return how much memory the run's tensors take, activations aside.

    Args:
        model: The policy.
        optimizer: Its optimizer.
        separate_gradient: Whether retention holds a gradient of its own.
    """
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    gradients = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    moments = moments_per_parameter(optimizer) * gradients
    retention = gradients if separate_gradient else 0
    parts = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": moments,
        "retention gradient": retention,
    }
    listed = ", ".join(f"{name} {_bytes(size)}" for name, size in parts.items())
    return f"Memory, activations aside: {_bytes(sum(parts.values()))} ({listed})"


def moments_per_parameter(optimizer: Optimizer) -> int:
    """Return how many numbers an optimizer keeps per parameter; Adam's two where the kind is unknown."""
    while "optimizer" in vars(optimizer):
        optimizer = vars(optimizer)["optimizer"]
    if isinstance(optimizer, torch.optim.SGD):
        return 1 if optimizer.defaults["momentum"] else 0
    return 2


def _module_of(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:-1][:depth]) or name


def _useful_depth(names: list[str]) -> int:
    """Return how many parts of a name to show: wrappers around one module say nothing, every layer too much."""
    for depth in range(2, 8):
        if len({_module_of(name, depth) for name in names}) >= FEWEST_MODULES:
            return depth
    return 2


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise ValueError(f"`size={size}` has no unit.")
