# SPDX-License-Identifier: Apache-2.0
import pytest

from lerobot_craft.evaluation import TaskSuccess, wilson_interval


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [(0, 20, 0.0, 0.1611), (10, 20, 0.2993, 0.7007), (19, 20, 0.7639, 0.9911), (81, 263, 0.2553, 0.3662)],
)
def test_wilson(successes: int, episodes: int, low: float, high: float) -> None:
    assert wilson_interval(successes, episodes) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(("successes", "episodes"), [(0, 0), (3, 2), (-1, 5)])
def test_wilson_refuses_what_is_no_count(successes: int, episodes: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes in {episodes} episodes"):
        wilson_interval(successes, episodes)


def test_rate() -> None:
    assert TaskSuccess("push", (True, False, True, True)).rate == 0.75
