# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft eval --env.type=…`: LeRobot's evaluation, its seeds, what is kept, what is refused."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests._command import Outcome, craft

from lerobot_craft.testing import TinyPaths

POINT = (
    "--env.type=point",
    "--env.discover_packages_path=tests.evaluation.point_env",
    '--rename_map={"observation.images.above": "observation.images.front"}',
)
STATES = ("--env.type=metaworld_state", "--env.episode_length=50", "--eval.n_episodes=6", "--eval.batch_size=3")


@pytest.fixture(scope="module")
def evaluated(checkpoint: Path, forward_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A teacher that presses the button, and a student that has forgotten it: where the results are, and the table."""
    folder = tmp_path_factory.mktemp("eval")
    split = ("--env.task=coffee-button,reach", "--old_tasks=coffee-button", "--new_tasks=reach")
    words = (f"--policy.paths=[{forward_checkpoint},{checkpoint}]", *STATES, *split, "--seed=0")
    outcome = craft(["eval", *words, f"--output_dir={folder}"])
    assert outcome.code == 0, outcome.text
    return folder, outcome.text


def results(folder: Path) -> dict:
    return json.loads((folder / "eval.json").read_text())


def test_lerobots_evaluation_and_our_rollouts_agree_seed_by_seed(
    evaluated: tuple[Path, str], forward_checkpoint: Path, tmp_path: Path
) -> None:
    words = ["eval", f"--policy.path={forward_checkpoint}", "--tasks=coffee-button,reach", "--episodes=6"]
    craft([*words, "--max_steps=50", f"--output={tmp_path}/fast.json"])
    fast = json.loads((tmp_path / "fast.json").read_text())["checkpoints"][str(forward_checkpoint)]
    assert results(evaluated[0])["checkpoints"][str(forward_checkpoint)] == fast
    # Both outcomes occur, or the seeds would not have been compared.
    assert set(fast["coffee-button"]["outcomes"]) == {True, False}


def test_what_was_forgotten(evaluated: tuple[Path, str], forward_checkpoint: Path, checkpoint: Path) -> None:
    folder, text = evaluated
    found = results(folder)
    before = sum(found["checkpoints"][str(forward_checkpoint)]["coffee-button"]["outcomes"])
    assert found["metrics"][str(checkpoint)]["average_forgetting"] == pytest.approx(before / 6)
    assert f"old tasks from the same 6 starts: {before} lost, 0 gained" in text
    assert f"forgetting {before / 6:.2f}  BWT -{before / 6:.2f}" in text


def test_stock_lerobot_eval_runs_the_same_environment(
    evaluated: tuple[Path, str], forward_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lerobot.scripts.lerobot_eval import eval_main

    theirs = ("--env.discover_packages_path=lerobot_craft.evaluation", "--env.task=coffee-button", "--seed=0")
    words = ["lerobot-eval", f"--policy.path={forward_checkpoint}", *STATES, *theirs, f"--output_dir={tmp_path}/stock"]
    monkeypatch.setattr(sys, "argv", words)
    eval_main()
    info = json.loads((tmp_path / "stock" / "eval_info.json").read_text())
    ours = results(evaluated[0])["checkpoints"][str(forward_checkpoint)]["coffee-button"]["outcomes"]
    assert info["per_task"][0]["metrics"]["successes"] == ours
    assert len(list((tmp_path / "stock").rglob("*.mp4"))) == 6


def test_a_task_is_not_run_again_for_its_neighbours(
    evaluated: tuple[Path, str], forward_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lerobot_craft.training import _compat

    shutil.copytree(evaluated[0] / "parts", tmp_path / "parts")
    monkeypatch.delattr(_compat, "eval_policy_all")
    words = (f"--policy.paths=[{forward_checkpoint}]", *STATES, "--env.task=reach", "--seed=0")
    outcome = craft(["eval", *words, f"--output_dir={tmp_path}"])
    assert outcome.code == 0, outcome.text


def on_points(policy: Path, folder: Path, *more: str) -> Outcome:
    shared = ("--eval.n_episodes=5", "--eval.batch_size=2", "--seed=10", f"--output_dir={folder}")
    return craft(["eval", f"--policy.paths=[{policy}]", *POINT, *shared, *more])


def test_an_environment_of_ones_own_with_videos(make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path) -> None:
    policy = make_tiny_once("act").policy
    outcome = on_points(policy, tmp_path, "--videos=2", "--old_tasks=points/0", "--new_tasks=points/1")
    assert outcome.code == 0, outcome.text
    found = results(tmp_path)
    successes = found["checkpoints"][str(policy)]
    # Seeds 10 to 14, however many run side by side.
    assert successes["points/0"]["outcomes"] == [False, False, True, False, False]
    assert successes["points/1"]["outcomes"] == [True, False, False, True, False]
    films = found["videos"][str(policy)]["points/1"]
    assert len(films) == 2
    assert all(Path(film).stat().st_size > 0 for film in films)


def test_an_interrupted_evaluation_goes_on(
    make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lerobot_craft.training import _compat

    policy = make_tiny_once("act").policy
    evaluate, runs = _compat.eval_policy_all, []

    def stop_at_second(**arguments: object) -> object:
        runs.append(arguments["envs"])
        if len(runs) == 2:
            raise KeyboardInterrupt
        return evaluate(**arguments)

    monkeypatch.setattr(_compat, "eval_policy_all", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        on_points(policy, tmp_path)
    assert not (tmp_path / "eval.json").exists()
    # Goes on with the second task, then has nothing left to do, then has another question to answer.
    assert on_points(policy, tmp_path).code == 0
    assert [list(env["points"]) for env in runs] == [[0], [1], [1]]
    assert on_points(policy, tmp_path).code == 0
    assert len(runs) == 3
    assert on_points(policy, tmp_path, "--eval.n_episodes=4").code == 0
    assert len(runs) == 5
    # The groups of this environment are called the same whatever its task.
    assert on_points(policy, tmp_path, "--env.task=another").code == 0
    assert len(runs) == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--env.type=metaworld_stat",), "is no environment that LeRobot knows here: did you mean metaworld_state"),
        (("--env.type=metaworld_state", "--env.tusk=push"), "unrecognized arguments: --env.tusk=push"),
        (("--env.type=metaworld_state", "--env.task=pusch"), "which is no Meta-World task: did you mean push"),
        (("--env.type=metaworld_state", "--env.task=,"), "`--env.type=metaworld_state --env.task=,` could not be read"),
        (("--env.type=metaworld_state", "--env.task=null"), "`--env.task` names no task"),
        (("--env.type=metaworld_state", "--env.episode_length=0"), "`--env.episode_length=0`: expected 1 to 500"),
        (("--env.type=metaworld_state", "--eval.n_episodes=0"), "`--eval.n_episodes=0`: expected 1 or more"),
        (("--env.type=metaworld_state", "--eval.n_episodes=x"), "Couldn't parse 'x' into an int"),
        (("--env.type=metaworld_state", "--new_tasks=reach"), "name `reach`, which `--env.task` does not run"),
        (("--env.type=metaworld_state", "--sequence", "--new_tasks=push"), "got 1 for 1 checkpoints"),
        (("--env.type=metaworld_state", "--tasks=push"), "With `--env.type`, `--tasks` is `--env.task`"),
        (("--env.type=metaworld_state", "--env.discover_packages_path=nowhere"), "could not be imported"),
        (("--env.type=pusht",), "could not be made: ModuleNotFoundError"),
        (POINT, "which the environment does not give"),
        (("--env.task=push",), "`--env.task=push` needs `--env.type`"),
        (("--tasks=push", "--videos"), "`--videos` needs `--env.type`"),
        (("--env.type=metaworld_state", "--episode=3"), "`--episode=3` is no flag of this command"),
    ],
)
def test_one_clear_line_for_bad_input(words: tuple[str, ...], message: str, checkpoint: Path, tmp_path: Path) -> None:
    folder = () if "--tasks=push" in words or "--env.task=push" in words else (f"--output_dir={tmp_path}",)
    outcome = craft(["eval", f"--policy.paths=[{checkpoint}]", *words, *folder])
    assert outcome.code == 2, outcome.text
    assert message in outcome.text
    assert "Traceback" not in outcome.text


def test_checkpoints_that_are_not_there(checkpoint: Path, tmp_path: Path) -> None:
    words = ["eval", f"--policy.paths=[{tmp_path}/a,{checkpoint},{tmp_path}/b]", "--env.type=metaworld_state"]
    outcome = craft(words)
    assert outcome.code == 2
    assert f"`{tmp_path}/a`, where there is no `config.json`" in outcome.text
    assert f"`{tmp_path}/b`, where there is no `config.json`" in outcome.text
    assert "`--policy.paths` must be given" in craft(["eval", "--env.type=metaworld_state"]).text
