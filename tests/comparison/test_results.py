# SPDX-License-Identifier: Apache-2.0
"""Numbers of runs and of tables, by hand."""

import pytest

from lerobot_craft.comparison import METHODS, Problem
from lerobot_craft.comparison._results import command_of, run_numbers, spread

COST = {"train_cpu_s": 2.0, "peak_memory_mib": 5.0}


def test_spread_is_students_interval() -> None:
    found = spread([0.9, 1.0, 0.95], 0, 1)
    # 4.303 · 0.05 / √3
    assert found["mean"] == 0.95
    assert found["low"] == pytest.approx(0.95 - 0.1242, abs=1e-4)
    assert found["high"] == 1.0


def test_one_run_has_no_interval() -> None:
    assert spread([0.5]) == {"mean": 0.5, "low": None, "high": None, "values": [0.5]}


def test_one_new_task() -> None:
    problem = Problem("p", ("a", "b"), ("c",))
    teacher = {"success": {"a": 1.0, "b": 0.8, "c": 0.0}}
    stage = {"success": {"a": 0.5, "b": 0.8, "c": 1.0}, "half": 0.5, "drift": {"a": 0.3, "b": 0.1}, **COST}
    found = run_numbers(problem, teacher, [stage])
    assert found["old_success"] == pytest.approx(0.65)
    assert found["new_success"] == 1.0
    assert found["forgetting"] == pytest.approx(0.25)
    # Before, half-way, at the end.
    assert found["fwt"] == pytest.approx(0.5)
    assert found["drift"] == pytest.approx(0.2)
    assert found["train_s"] == 2.0


def test_a_sequence() -> None:
    problem = Problem("p", ("a",), ("b", "c"))
    teacher = {"success": {"a": 1.0, "b": 0.0}}
    first = {"success": {"a": 0.9, "b": 1.0, "c": 0.0}, "half": 1.0, "drift": {"a": 0.1}, **COST}
    second = {"success": {"a": 0.7, "b": 0.8, "c": 0.6}, "half": 0.0, "drift": {"a": 0.3, "b": 0.2}, **COST}
    found = run_numbers(problem, teacher, [first, second])
    assert found["old_success"] == pytest.approx(0.75)
    assert found["new_success"] == pytest.approx(0.8)
    assert found["average_success"] == pytest.approx(0.7)
    # Task a: (0.1 + 0.3) / 2, task b: 0.2.
    assert found["forgetting"] == pytest.approx(0.2)
    assert found["train_s"] == 4.0


def test_the_command_of_a_method_is_one_that_a_user_can_type() -> None:
    command = command_of(METHODS["merge"])
    assert command.startswith("lerobot-craft train --policy.path=TEACHER")
    assert "lerobot-craft merge --teacher.path=TEACHER" in command
    assert "--alpha=0.4" in command
    assert "--dataset.repo_id=OLD_DATA" in command_of(METHODS["craft"])
