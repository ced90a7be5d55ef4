# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lerobot_craft.dual import Budget, EpsilonSchedule, EpsilonUnits, Reference
from lerobot_craft.errors import SettingsError, StateError


@pytest.mark.parametrize(
    ("schedule", "quarter"),
    [
        (EpsilonSchedule.CONSTANT, 1.0),
        (EpsilonSchedule.LINEAR, 0.775),
        (EpsilonSchedule.COSINE, 0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2),
        (EpsilonSchedule.EXPONENTIAL, 0.1**0.25),
    ],
)
def test_schedules_at_start_quarter_end_and_beyond(schedule: EpsilonSchedule, quarter: float) -> None:
    budget = Budget(1.0, 0.1, 100, schedule)
    end = 1.0 if schedule is EpsilonSchedule.CONSTANT else 0.1
    assert [budget.bound(step) for step in (0, 25, 100, 1000)] == pytest.approx([1.0, quarter, end, end])


@given(
    schedule=st.sampled_from(EpsilonSchedule),
    end=st.floats(1e-3, 1.0),
    more=st.floats(0.0, 10.0),
    step=st.integers(0, 300),
)
def test_a_budget_only_tightens_and_stays_between_its_ends(
    schedule: EpsilonSchedule, end: float, more: float, step: int
) -> None:
    budget = Budget(end + more, end, 200, schedule)
    assert budget.epsilon(step + 1) <= budget.epsilon(step) * (1 + 1e-12)
    assert end * (1 - 1e-12) <= budget.epsilon(step) <= (end + more) * (1 + 1e-12)


def test_relative_units_count_from_the_floor_in_units_of_the_scale() -> None:
    budget = Budget(0.1, 0.1, 0, EpsilonSchedule.CONSTANT, EpsilonUnits.RELATIVE)
    with pytest.raises(StateError, match="no reference was measured"):
        budget.bound(0)
    budget.calibrate(Reference(floor=2.0, scale=5.0))
    assert budget.bound(0) == pytest.approx(2.5)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_reference_without_a_scale_is_refused(scale: float) -> None:
    budget = Budget(0.1, 0.1, 0, units=EpsilonUnits.RELATIVE)
    with pytest.raises(SettingsError, match="epsilon_units='raw'"):
        budget.calibrate(Reference(0.0, scale))


def test_the_reference_survives() -> None:
    budget = Budget(0.1, 0.1, 0, units=EpsilonUnits.RELATIVE)
    budget.calibrate(Reference(2.0, 5.0))
    other = Budget(0.1, 0.1, 0, units=EpsilonUnits.RELATIVE)
    other.load_state_dict(budget.state_dict())
    assert other.reference == Reference(2.0, 5.0)
