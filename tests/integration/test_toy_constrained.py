# SPDX-License-Identifier: Apache-2.0
"""The findings of `benchmarks/toy_constrained.py`, in small."""

import pytest

from toy_constrained import CONTROLLERS, run


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_pi_with_projection_while_violated_reaches_the_optimum_without_overshoot(noise: float) -> None:
    outcome = run(0, noise, {"projection": "violated", **CONTROLLERS["pi"]})
    assert outcome.peak < 1.5
    assert abs(outcome.excess) < 0.01
    assert outcome.final == pytest.approx(1.0, abs=0.05)


def test_unconditional_projection_stalls_without_noise() -> None:
    outcome = run(0, 0.0, {"projection": "always", **CONTROLLERS["dual"]})
    assert outcome.excess > 0.3
    assert outcome.final < 0.1


def test_dual_ascent_alone_overshoots() -> None:
    assert run(0, 0.0, {"projection": "off", **CONTROLLERS["dual"]}, steps=500).peak > 2.0
