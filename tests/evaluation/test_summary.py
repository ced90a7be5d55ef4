# SPDX-License-Identifier: Apache-2.0
"""Old and new tasks apart, groups, stages, paired starts: worked out by hand."""

import pytest

from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation._success import TaskSuccess
from lerobot_craft.evaluation._summary import make_split, paired_lines, sequences, success_lines

TASKS = ("kitchen/0", "kitchen/1", "push", "kitchen-wide")


def found(*rates: tuple[float, ...]) -> dict[str, list[TaskSuccess]]:
    """Stages named 0, 1, … with success on A, B, C out of 4 episodes."""
    return {
        str(stage): [
            TaskSuccess(task, (True,) * round(4 * rate) + (False,) * round(4 - 4 * rate))
            for task, rate in zip("ABC", row, strict=True)
        ]
        for stage, row in enumerate(rates)
    }


def test_a_group_stands_for_its_tasks() -> None:
    split = make_split(["kitchen"], ["push"], TASKS, sequence=False)
    assert split.old == ("kitchen/0", "kitchen/1")
    assert split.all_new == ("push",)
    with pytest.raises(UsageError, match=r"name `pusch`, `kitchen/2`, which .* expected some of kitchen/0"):
        make_split(["pusch"], ["kitchen/2"], TASKS, sequence=False)


def test_stages_give_one_sequence_and_students_one_each() -> None:
    rates = found((1.0, 0.0, 0.0), (0.5, 1.0, 0.0), (0.25, 0.75, 1.0))
    stages = sequences(rates, make_split(["A"], ["B", "C"], "ABC", sequence=True))
    assert list(stages) == ["2"]
    # A: 1.0 to 0.25, B: 1.0 to 0.75; C has nothing after it.
    assert stages["2"].average_forgetting == pytest.approx((0.75 + 0.25) / 2)
    assert stages["2"].forward_transfer == pytest.approx(1.0)
    students = sequences(rates, make_split(["A"], ["B", "C"], "ABC", sequence=False))
    assert list(students) == ["1", "2"]
    assert students["1"].average_forgetting == pytest.approx(0.5)
    assert students["1"].forward_transfer == pytest.approx((1.0 + 0.0) / 2)
    assert sequences(rates, make_split([], [], "ABC", sequence=False)) == {}


def test_the_table_has_a_row_for_each_task_and_each_part() -> None:
    rows = found((1.0, 0.0, 0.5))
    lines = success_lines("teacher", rows["0"], make_split(["A"], ["B"], "ABC", sequence=False))
    assert [line.split("  ")[1] for line in lines[1:]] == [*"ABC", "old tasks", "new tasks", "all"]
    assert lines[-1] == "  all        0.50  0.25-0.75"


def test_what_changed_at_the_same_starts() -> None:
    before = [TaskSuccess("A", (True, True, False, False)), TaskSuccess("B", (True, True, True, True))]
    after = [TaskSuccess("A", (True, False, True, False)), TaskSuccess("B", (False, False, False, False))]
    assert paired_lines(before, after, ["A"]) == ["  old tasks from the same 4 starts: 1 lost, 1 gained"]
    assert paired_lines(before, after, []) == []
