# SPDX-License-Identifier: Apache-2.0
"""Fine-tune a pretrained model on something new, under a budget for what it may forget.

The problem is `min L_task(θ) subject to L_retain(θ) ≤ ε(t)`. The method is a gradient added between `backward()` and
`step()`; this is all of it:

>>> import torch
>>> from lerobot_craft import ConstraintConfig, RetentionConstraint
>>> weight = torch.nn.Linear(1, 1, bias=False)
>>> with torch.no_grad():
...     _ = weight.weight.fill_(0.0)
>>> constraint = RetentionConstraint(
...     weight,
...     lambda: weight.weight.square().sum(),  # what was known: w = 0
...     ConstraintConfig(
...         epsilon_start=0.25, epsilon_schedule="constant", retention_freq=1, lambda_lr=0.2, use_grad_projection=False
...     ),
... )
>>> optimizer = torch.optim.SGD(weight.parameters(), lr=0.05)
>>> for step in range(400):
...     optimizer.zero_grad()
...     (weight.weight - 2.0).square().sum().backward()  # what is new: w = 2
...     report = constraint.apply_(step)
...     optimizer.step()
>>> round(weight.weight.item(), 2), round(report.floats()["multiplier"], 1)  # w² ≤ ¼ binds, and λ = 3 is its price
(0.5, 3.0)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lerobot_craft.config import ConstraintConfig
    from lerobot_craft.constraint import RetentionConstraint
    from lerobot_craft.presets import PRESETS, preset
    from lerobot_craft.step_report import StepReport

__all__ = ["PRESETS", "ConstraintConfig", "RetentionConstraint", "StepReport", "preset"]

# Imported on first use: `lerobot-craft --help` passes through here, and torch alone takes seconds to import.
_HOMES = {
    "PRESETS": "presets",
    "ConstraintConfig": "config",
    "RetentionConstraint": "constraint",
    "StepReport": "step_report",
    "preset": "presets",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a module's members are of any type
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
