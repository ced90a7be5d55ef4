# SPDX-License-Identifier: Apache-2.0
"""What may be compared, and what is said about what may not."""

from pathlib import Path

import pytest

from lerobot_craft.comparison import METHODS, CompareSettings
from lerobot_craft.comparison._methods import STRENGTHS
from lerobot_craft.comparison._settings import GROUPS, TUNING, Problem
from lerobot_craft.comparison._study import read_study
from lerobot_craft.errors import SettingsError, UsageError


def test_every_method_gets_as_many_tries() -> None:
    assert {len(method.strengths) for method in METHODS.values()} == {STRENGTHS}


@pytest.mark.parametrize("tuning", TUNING, ids=lambda problem: problem.name)
def test_no_table_uses_a_tuning_problem(tuning: Problem) -> None:
    splits = {problem.new_tasks for problem in GROUPS["splits"]}
    assert tuning.new_tasks not in splits
    for problem in GROUPS["splits"]:
        assert set(problem.old_tasks) != set(tuning.old_tasks)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(SettingsError) as raised:
        CompareSettings(methods=("plan", "craft"), problems=("split",), episodes=0, steps=1, seeds=(4000,))
    text = str(raised.value)
    for part in ("did you mean plain", "did you mean splits", "--episodes=0", "--steps=1", "4000"):
        assert part in text


def test_a_problem_has_old_and_new_tasks() -> None:
    with pytest.raises(SettingsError, match="without `--new_tasks`"):
        CompareSettings(old_tasks=("push",))
    with pytest.raises(SettingsError, match="push is named twice"):
        CompareSettings(old_tasks=("push",), new_tasks=("reach", "push"))


def test_own_tasks_are_the_only_problem() -> None:
    groups = CompareSettings(old_tasks=("push",), new_tasks=("reach",)).groups()
    assert [problem.tasks for problems in groups.values() for problem in problems] == [("push", "reach")]


def test_sequences_are_run_for_few_methods_unless_some_are_named() -> None:
    assert CompareSettings().methods_of("sequence") == ("plain", "craft", "action", "replay")
    assert CompareSettings(methods=("plain", "ewc")).methods_of("sequence") == ("plain", "ewc")


def test_a_method_at_a_strength() -> None:
    method = METHODS["replay"].at(3.0)
    assert method.flags["craft.initial_lambda"] == 3.0
    assert method.facts() != METHODS["replay"].facts()


def test_a_study_starts_from_the_methods_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        '[methods.random]\nbase = "craft"\ncache = { selection = "random" }\nflags = { "craft.retention_freq" = 5 }\n'
    )
    method = read_study(path)["random"]
    assert method.cache == {**(METHODS["craft"].cache or {}), "selection": "random"}
    assert method.flags == {**METHODS["craft"].flags, "craft.retention_freq": 5}
    assert method.strengths == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no table of methods"),
        ("[methods", "could not be read"),
        ("[methods.a]\nbase = 'none'", "based on `none`: expected one of"),
        ("[methods.a]\nflag = 1", "has `flag`: expected base"),
        ("[methods.a]\nsource = 'news'", "`source=news`: expected old or prompted"),
    ],
)
def test_a_study_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_study(path)


@pytest.mark.parametrize("path", sorted(Path("benchmarks/studies").glob("*.toml")), ids=lambda path: path.stem)
def test_the_studies_of_the_benchmarks_can_be_read(path: Path) -> None:
    assert len(read_study(path)) > 1
