# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from lerobot_craft import ConstraintConfig
from lerobot_craft.errors import SettingsError


def test_defaults_are_those_the_user_asked_for() -> None:
    config = ConstraintConfig()
    assert (config.initial_lambda, config.lambda_lr, config.lambda_max) == (1.0, 0.01, 10.0)
    assert (config.epsilon_start, config.epsilon_end, config.epsilon_decay_steps) == (1.0, 0.1, 0)
    assert (config.conflict_threshold, config.use_grad_projection, config.merge_mode) == (-0.1, True, "weighted")
    assert config.retention_freq == 5


def test_every_problem_is_named_in_one_message() -> None:
    with pytest.raises(SettingsError) as caught:
        ConstraintConfig(
            initial_lambda=-1.0,
            epsilon_start=0.1,
            epsilon_end=1.0,
            merge_mode="sideways",
            projection="sometimes",
            retention_freq=0,
            lambda_lr=math.nan,
            violation_ema=1.0,
            conflict_threshold=-2.0,
            max_retention_ratio=0.0,
            loss_scale=0.0,
        )
    message = str(caught.value)
    for part in (
        "`initial_lambda=-1.0` is negative",
        "`epsilon_start=0.1` is below `epsilon_end=1.0`",
        "`merge_mode=sideways` is unknown: expected one of weighted, equal, task_priority",
        "`projection=sometimes` is unknown: expected one of off, always, violated",
        "`retention_freq=0`",
        "`lambda_lr` is NaN",
        "`violation_ema=1.0`",
        "`conflict_threshold=-2.0`",
        "`max_retention_ratio=0.0`",
        "`loss_scale=0.0`",
    ):
        assert part in message
    assert len(caught.value.problems) == 10


@pytest.mark.parametrize(
    "settings",
    [
        {"initial_lambda": 20.0},
        {"epsilon_end": -0.1},
        {"epsilon_schedule": "exponential", "epsilon_end": 0.0},
        {"epsilon_decay_steps": -1},
        {"retention_freq": 2.5},
        {"lambda_controller": "pid"},
        {"epsilon_units": "metres"},
        {"lambda_max": math.inf},
    ],
)
def test_single_problems(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError) as caught:
        ConstraintConfig(**settings)
    assert len(caught.value.problems) == 1
    assert next(iter(settings)) in str(caught.value)


def test_a_constant_budget_does_not_read_its_end() -> None:
    assert ConstraintConfig(epsilon_schedule="constant", epsilon_start=0.01).epsilon_start == 0.01


def test_a_setting_spoiled_later_is_refused_on_use() -> None:
    from torch import nn

    from lerobot_craft import RetentionConstraint

    config = ConstraintConfig(epsilon_schedule="constant")
    config.retention_freq = 0
    model = nn.Linear(1, 1)
    with pytest.raises(SettingsError, match="retention_freq=0"):
        RetentionConstraint(model, lambda: model.weight.sum(), config)
