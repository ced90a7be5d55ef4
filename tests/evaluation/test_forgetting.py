# SPDX-License-Identifier: Apache-2.0
"""Forgetting metrics against numbers worked out by hand from their equations."""

import pytest

from lerobot_craft.evaluation import forgetting_metrics

# A teacher that knows A and B, then C, then D.
SEQUENCE = [
    {"A": 1.0, "B": 0.8, "C": 0.1, "D": 0.0},
    {"A": 0.6, "B": 1.0, "C": 0.9, "D": 0.0},
    {"A": 0.4, "B": 0.5, "C": 0.7, "D": 1.0},
]
LEARNT_AT = {"A": 0, "B": 0, "C": 1, "D": 2}


def test_a_sequence_by_hand() -> None:
    found = forgetting_metrics(SEQUENCE, LEARNT_AT)
    assert found.forward_transfer == pytest.approx((0.9 + 1.0) / 2)
    # A: (0.4 + 0.6) / 2, B: (-0.2 + 0.3) / 2, C: 0.2; D has nothing after it.
    assert found.negative_backward_transfer == pytest.approx((0.5 + 0.05 + 0.2) / 3)
    assert found.area_under_curve == pytest.approx((2.0 / 3 + 2.3 / 3 + 1.6 / 2 + 1.0) / 4)
    # B was best in the middle, which only Chaudhry's number sees.
    assert found.average_forgetting == pytest.approx((0.6 + 0.5 + 0.2) / 3)
    assert found.backward_transfer == pytest.approx((-0.6 - 0.3 - 0.2) / 3)


def test_checkpoints_within_a_stage_count_for_speed_only() -> None:
    plain = forgetting_metrics(SEQUENCE, LEARNT_AT)
    slow = forgetting_metrics(SEQUENCE, LEARNT_AT, {"D": [0.0, 0.5, 1.0]})
    assert slow.forward_transfer == pytest.approx((0.9 + 0.5) / 2)
    assert slow.area_under_curve == pytest.approx((2.0 / 3 + 2.3 / 3 + 1.6 / 2 + 0.5) / 4)
    assert slow.negative_backward_transfer == plain.negative_backward_transfer
    assert forgetting_metrics(SEQUENCE, LEARNT_AT, {"D": [1.0]}) == plain


def test_a_teacher_alone_has_nothing_to_forget() -> None:
    found = forgetting_metrics([{"A": 1.0, "B": 0.5}], {"A": 0, "B": 0})
    assert found.forward_transfer is None
    assert found.negative_backward_transfer is found.average_forgetting is found.backward_transfer is None
    assert found.area_under_curve == 0.75


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)stage 7: expected 0 to 1.*lacks `B`.*is 1.5: expected a rate") as caught:
        forgetting_metrics([{"A": 1.5, "B": 1.0}, {"A": 1.0}], {"C": 7, "B": 0, "A": 0})
    assert len(str(caught.value).splitlines()) == 3
