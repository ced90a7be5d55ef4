# SPDX-License-Identifier: Apache-2.0
"""The known methods as settings of one object: a comparison between them changes nothing else.

Holds no code of any method. Weight interpolation is not a gradient and has a command of its own.
"""

from typing import Any, NamedTuple

from lerobot_craft.config import ConstraintConfig
from lerobot_craft.errors import SettingsError


class Preset(NamedTuple):
    """One method.

    Attributes:
        retention_mode: What is retained; None where nothing is.
        settings: What differs from the defaults of `ConstraintConfig`.
        source: Where the method is from.
        training: What differs from the other defaults of `lerobot-craft train`.
    """

    retention_mode: str | None
    settings: dict[str, Any]
    source: str
    training: dict[str, Any] = {}  # noqa: RUF012 -- never changed


_EVERY_STEP: dict[str, Any] = {"retention_freq": 1, "epsilon_schedule": "constant"}
_FIXED: dict[str, Any] = {**_EVERY_STEP, "lambda_controller": "fixed", "use_grad_projection": False}

_CRAFT: dict[str, Any] = {
    **_EVERY_STEP,
    "lambda_controller": "pi",
    "lambda_lr": 1.0,
    "lambda_kp": 10.0,
    "lambda_max": 100.0,
    "violation_ema": 0.9,
    "epsilon_start": 0.01,
    "epsilon_units": "relative",
    "max_retention_ratio": 4.0,
}

# At every step a few anchors keep as much as many (docs/comparison.md), and cost less.
_FEW: dict[str, Any] = {"anchor_batch_size": None}

PRESETS: dict[str, Preset] = {
    "craft": Preset("action", _CRAFT, "this package", _FEW),
    "seed": Preset(
        "hidden", {"projection": "always"}, "CRaFT as first specified; kept for comparison, it does not retain"
    ),
    "er": Preset("replay", {**_FIXED, "initial_lambda": 1.0}, "experience replay, Rolnick et al. 2019"),
    "lwf": Preset("action", {**_FIXED, "initial_lambda": 1.0}, "learning without forgetting, Li & Hoiem 2016"),
    "agem": Preset(
        "replay",
        {
            **_EVERY_STEP,
            "lambda_controller": "fixed",
            "initial_lambda": 0.0,
            "projection": "always",
            "conflict_threshold": 0.0,
        },
        "A-GEM, Chaudhry et al. 2019",
    ),
    "ewc": Preset("ewc", {**_FIXED, "initial_lambda": 1000.0, "lambda_max": 1000.0}, "Kirkpatrick et al. 2017"),
    "l2sp": Preset("l2sp", {**_FIXED, "initial_lambda": 0.1}, "L2-SP, Li et al. 2018"),
    "plain": Preset(None, {**_FIXED, "initial_lambda": 0.0}, "fine-tuning without retention"),
}


# Where a preset is something else for one type of policy.
# For ACT hidden states, with everything behind them frozen, keep as much as actions at two thirds of the cost
# (docs/comparison.md). For policies that see and read hidden states keep next to nothing, actions at a fixed λ as much
# as under a controller, and without a bound on their step both losses take one pass (docs/pixels.md): the budget is
# measured there and not enforced. SmolVLA is what was measured; the others share its form.
_VLA = Preset(
    "action",
    {**_FIXED, "initial_lambda": 1.0, "epsilon_start": 0.01, "epsilon_units": "relative"},
    "this package",
    _FEW,
)
FOR_POLICY: dict[tuple[str, str], Preset] = {
    ("craft", "act"): Preset(
        "hidden", _CRAFT, "this package", {"hidden_relative": True, "freeze_behind_tap": True, **_FEW}
    ),
    **{("craft", policy): _VLA for policy in ("smolvla", "pi0", "pi05", "pi0_fast")},
}


def preset(name: str, **changes: Any) -> ConstraintConfig:  # noqa: ANN401 -- settings are of several types
    """Return the settings of a known method.

    >>> preset("er", initial_lambda=2.0).lambda_controller
    'fixed'

    Args:
        name: A key of `PRESETS`.
        **changes: Settings that override the preset's.

    Raises:
        SettingsError: If the name is unknown or a setting cannot work.
    """
    return ConstraintConfig(**{**find_preset(name).settings, **changes})


def find_preset(name: str, policy_type: str | None = None) -> Preset:
    """Return the preset of this name.

    >>> find_preset("craft").retention_mode, find_preset("craft", "act").retention_mode
    ('action', 'hidden')

    Args:
        name: A key of `PRESETS`.
        policy_type: LeRobot's name of the policy's type, where it is known.

    Raises:
        SettingsError: If there is none.
    """
    if name not in PRESETS:
        raise SettingsError([f"`preset={name}` is unknown: expected one of {', '.join(PRESETS)}."])
    return FOR_POLICY.get((name, policy_type or ""), PRESETS[name])


def presets_table() -> str:
    """Return the presets as a Markdown table; the documentation prints exactly this."""
    rows = ["| preset | what is retained | settings that differ from the defaults | source |", "|---|---|---|---|"]
    titles = [(f"`{name}`", entry) for name, entry in PRESETS.items()]
    alike: dict[int, list[tuple[str, str]]] = {}
    for key, entry in FOR_POLICY.items():
        alike.setdefault(id(entry), []).append(key)
    titles[1:1] = [
        (f"`{keys[0][0]}` for {', '.join(f'`{policy}`' for _, policy in keys)}", FOR_POLICY[keys[0]])
        for keys in alike.values()
    ]
    for title, entry in titles:
        settings = ", ".join(f"`{key}={value}`" for key, value in {**entry.settings, **entry.training}.items())
        rows.append(f"| {title} | {entry.retention_mode or 'nothing'} | {settings} | {entry.source} |")
    return "\n".join(rows) + "\n"
