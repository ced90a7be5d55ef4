# SPDX-License-Identifier: Apache-2.0
"""Words as users write them become words LeRobot's parser reads."""

import pytest

from lerobot_craft.cli._arguments import given, names_given, normalize, without


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["craft.enabled=true"], ["--craft.enabled=true"]),
        (["--eval_freq=0"], ["--env_eval_freq=0"]),
        (["--eval_freq", "0"], ["--env_eval_freq", "0"]),
        (["eval_freq=0"], ["--env_eval_freq=0"]),
        (["--dataset.repo_id", "a=b"], ["--dataset.repo_id", "a=b"]),
        (["--policy.path=x=y"], ["--policy.path=x=y"]),
        (["--resume"], ["--resume"]),
        (["stray"], ["stray"]),
        (["--rename_map={a=b}", "steps=3"], ["--rename_map={a=b}", "--steps=3"]),
    ],
)
def test_normalize(written: list[str], read: list[str]) -> None:
    assert normalize(written) == read


def test_last_value_counts() -> None:
    assert given(["--steps=1", "--steps", "2"], "steps") == "2"


def test_names_of_a_group() -> None:
    assert names_given(["--craft.preset=er", "--craftsman=1", "--craft.lambda_lr", "2"], "craft") == {
        "preset",
        "lambda_lr",
    }


def test_without_keeps_the_neighbours() -> None:
    words = ["--a", "1", "--print_config", "true", "--b=2"]
    assert without(words, "print_config") == ["--a", "1", "--b=2"]
