# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation import Expert, Simulator, check_tasks, instruction, instruction_vector, task_names


def test_all_of_metaworld_is_there() -> None:
    assert len(task_names()) == 50
    assert {"hammer", "drawer-open"} <= set(task_names())


def test_an_unknown_name_gets_its_near_misses() -> None:
    with pytest.raises(UsageError, match=r"`--new_task` names `draw-open`.*did you mean drawer-open"):
        check_tasks("new_task", ["push", "draw-open"])


def test_a_name_like_no_other_gets_the_list() -> None:
    with pytest.raises(UsageError, match=r"expected one of assembly, .*window-open"):
        check_tasks("new_task", ["zzz"])


def test_every_task_has_an_instruction_vector_of_its_own() -> None:
    vectors = {instruction_vector(instruction(task)).tobytes() for task in task_names()}
    assert len(vectors) == 50
    assert set(np.unique(instruction_vector("drawer open"))) == {-1.0, 1.0}


def test_a_seed_fixes_the_start_whatever_came_before() -> None:
    first, second = Simulator("push"), Simulator("push")
    start = first.reset(7)
    for _ in range(5):
        first.step(np.ones(4))
    assert not np.array_equal(first.reset(8), start)
    assert np.array_equal(first.reset(7), start)
    assert np.array_equal(second.reset(7), start)


def test_the_goal_is_seen_at_every_step() -> None:
    simulator = Simulator("push")
    goal = simulator.reset(0)[-3:]
    assert np.abs(goal).max() > 0
    observation, _ = simulator.step(np.zeros(4))
    np.testing.assert_allclose(observation[-3:], goal, atol=1e-6)


def test_the_expert_succeeds_within_the_limits() -> None:
    simulator, expert = Simulator("push"), Expert("push")
    observation, success = simulator.reset(3), False
    for _ in range(150):
        action = expert.action(observation)
        assert np.abs(action).max() <= 1
        observation, success = simulator.step(action)
        if success:
            break
    assert success
