# SPDX-License-Identifier: Apache-2.0
"""Axes: linear or logarithmic, and where 0 goes."""

import pytest

from lerobot_craft.report._scale import fit


@pytest.mark.parametrize(
    ("values", "log"),
    [((1.0, 50.0), False), ((1.0, 5000.0), True), ((0.0, 1.0, 5000.0), True), ((-1.0, 5000.0), False), ((0.0,), False)],
)
def test_more_than_two_decades_are_logarithmic(values: tuple[float, ...], log: bool) -> None:
    assert fit(values, 0.0, 100.0, log=True).log is log


def test_nothing_is_at_the_lower_end_of_a_logarithmic_axis() -> None:
    axis = fit([0.0, 1.0, 10_000.0], 100.0, 0.0, log=True)
    assert (axis(0.0), axis(1.0), axis(100.0), axis(10_000.0)) == (100.0, 100.0, 50.0, 0.0)
