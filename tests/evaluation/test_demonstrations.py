# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from lerobot_craft.errors import RunError
from lerobot_craft.evaluation import Expert, _demonstrations, demonstrate


def test_the_same_seed_gives_the_same_episodes() -> None:
    first, again = (list(demonstrate("button-press-topdown", 2, 5)) for _ in range(2))
    other = next(iter(demonstrate("button-press-topdown", 1, 6)))
    assert len(first) == 2
    for one, two in zip(first, again, strict=True):
        assert np.array_equal(one.states, two.states)
        assert np.array_equal(one.actions, two.actions)
    assert not np.array_equal(first[0].states[0], other.states[0])


def test_what_is_recorded_is_the_experts_action_without_the_noise() -> None:
    episode = next(iter(demonstrate("button-press-topdown", 1, 0, noise=0.5)))
    expert = Expert("button-press-topdown")
    expected = np.stack([expert.action(state) for state in episode.states])
    np.testing.assert_array_equal(episode.actions, expected)


def test_an_expert_that_cannot_do_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_demonstrations, "MOST_FAILURES", 2)
    monkeypatch.setattr(_demonstrations, "LONGEST_EPISODE", 3)
    with pytest.raises(RunError, match=r"expert of `push` failed 2 times in a row within 3 steps"):
        list(demonstrate("push", 1, 0))
