# SPDX-License-Identifier: Apache-2.0
"""The methods that are compared, as settings of two commands and the strengths each is tried with; runs none of them.

Every method gets the same number of tries: `STRENGTHS` values of the one setting that matters most to it, chosen on a
problem that the table does not use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lerobot_craft.demo._methods import BATCH_SIZE
from lerobot_craft.demo._methods import HIDDEN as LAST_LAYER

STRENGTHS = 4
LEARNING_RATE = "optimizer.lr"

# Where a method's anchors are from.
OLD, PROMPTED = "old", "prompted"


@dataclass(frozen=True)
class Method:
    """One way to fine-tune.

    Attributes:
        title: Its name in tables.
        flags: What it adds to `lerobot-craft train`, without the dashes.
        setting: The setting that is tuned: a flag of `train`, or `alpha` for interpolation.
        strengths: The values tried; empty where nothing is tuned.
        cache: Flags of `lerobot-craft cache` for its anchors; None where it needs none.
        source: Observations of the anchors: `old`, or `prompted` for new observations under old instructions.
        keeps: Copies of the policy's parameters that it stores besides anchors.
        merges: Whether its last act is an interpolation with the teacher.
    """

    title: str
    flags: Mapping[str, Any]
    setting: str | None = None
    strengths: tuple[Any, ...] = ()
    cache: Mapping[str, Any] | None = None
    source: str = OLD
    keeps: int = 0
    merges: bool = False

    def at(self, strength: Any) -> "Method":  # noqa: ANN401 (a number or a pattern)
        """Return the method with its setting at one of its strengths."""
        if self.setting is None or strength is None:
            return self
        return replace(self, flags={**self.flags, self.setting: strength}, strengths=())

    def facts(self) -> dict[str, Any]:
        """Return what decides the outcome, as plain JSON values: equal for two names of one method."""
        return {
            "flags": {name: str(value) for name, value in sorted(self.flags.items())},
            "cache": None if self.cache is None else {name: str(value) for name, value in sorted(self.cache.items())},
            "source": self.source,
            "merges": self.merges,
        }


# Anchors of the kinds most methods read, so that they share them.
ACTIONS = {"kinds": "action,replay", "selection": "k_center"}
HIDDEN = {**LAST_LAYER, "selection": "k_center"}

_ANCHORED = {"craft.anchor_batch_size": BATCH_SIZE}
_RATES = (1e-4, 3e-4, 1e-3, 3e-3)
_BUDGETS = (0.003, 0.01, 0.03, 0.1)

METHODS: dict[str, Method] = {
    "lerobot": Method("plain, as LeRobot does it", {"craft.enabled": "false"}, LEARNING_RATE, _RATES),
    "plain": Method("plain, teacher's statistics", {"craft.preset": "plain"}, LEARNING_RATE, _RATES),
    "craft": Method("CRaFT", {"craft.preset": "craft", **_ANCHORED}, "craft.epsilon_start", _BUDGETS, HIDDEN),
    # What `craft` is for ACT: the same runs, under the name of what is retained.
    "hidden": Method("CRaFT, hidden", {"craft.preset": "craft", **_ANCHORED}, "craft.epsilon_start", _BUDGETS, HIDDEN),
    "action": Method(
        "CRaFT, action",
        {"craft.preset": "craft", "craft.retention_mode": "action", **_ANCHORED},
        "craft.epsilon_start",
        _BUDGETS,
        ACTIONS,
    ),
    "replay": Method(
        "replay (old labels)",
        {"craft.preset": "er", "craft.lambda_max": 100, **_ANCHORED},
        "craft.initial_lambda",
        (0.3, 1.0, 3.0, 10.0),
        ACTIONS,
    ),
    "lwf": Method(
        "LwF (fixed λ)",
        {"craft.preset": "lwf", "craft.lambda_max": 100, **_ANCHORED},
        "craft.initial_lambda",
        (1.0, 3.0, 10.0, 30.0),
        ACTIONS,
    ),
    "agem": Method("A-GEM", {"craft.preset": "agem", **_ANCHORED}, LEARNING_RATE, _RATES, ACTIONS),
    "ewc": Method(
        "EWC",
        {"craft.preset": "ewc", "craft.lambda_max": 1e7, "craft.fisher_anchors": 200},
        "craft.initial_lambda",
        (1e2, 1e3, 1e4, 1e5),
        ACTIONS,
        keeps=2,
    ),
    "l2sp": Method(
        "L2-SP",
        {"craft.preset": "l2sp", "craft.lambda_max": 1e3},
        "craft.initial_lambda",
        (0.01, 0.1, 1.0, 10.0),
        keeps=1,
    ),
    "merge": Method(
        "interpolation", {"craft.preset": "plain", "alpha": 0.4}, "alpha", (0.2, 0.4, 0.6, 0.8), keeps=1, merges=True
    ),
    "freeze": Method(
        "frozen parts",
        {"craft.preset": "plain", "craft.freeze": "encoder"},
        "craft.freeze",
        ("encoder", "decoder", "encoder|decoder", "encoder|input_proj"),
    ),
    "lora": Method(
        "LoRA",
        {
            "craft.preset": "plain",
            "peft.method_type": "LORA",
            "peft.lora_alpha": 8,
            "peft.target_modules": "all-linear",
            "peft.full_training_modules": "[]",
            LEARNING_RATE: 3e-3,
            "peft.r": 4,
        },
        "peft.r",
        (1, 2, 4, 8),
    ),
    "prompts": Method(
        "CRaFT, action, no old data",
        {"craft.preset": "craft", "craft.retention_mode": "action", **_ANCHORED},
        "craft.epsilon_start",
        _BUDGETS,
        ACTIONS,
        source=PROMPTED,
    ),
}
DEFAULT_METHODS = tuple(METHODS)
