# SPDX-License-Identifier: Apache-2.0
"""A run that was killed and resumed is the run that was not, bit for bit."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests._command import craft, forked
from tests._problem import Problem
from tests.training._asserts import assert_same_checkpoint

from lerobot_craft.training import _checkpoint, _compat, _loop

SETTINGS = {
    "steps": 40,
    "save_freq": 20,
    "log_freq": 1,
    "craft__retention_mode": "l2sp",
    "craft__retention_freq": 3,
    "craft__epsilon_start": 1.0,
    "craft__epsilon_end": 1e-5,
    "craft__initial_lambda": 5.0,
    "craft__lambda_lr": 0.5,
    "policy__optimizer_lr": 1e-3,
}
ADAPTERS = {
    "peft__method_type": "LORA",
    "peft__r": 2,
    "peft__target_modules": "[linear1,linear2]",
}


def flags(problem: Problem, output: Path, *, adapters: bool) -> list[str]:
    return problem.flags(output, **SETTINGS, **(ADAPTERS if adapters else {}))


def resume(output: Path) -> None:
    path = output / "checkpoints/last/pretrained_model/train_config.json"
    outcome = craft(["train", "--resume=true", f"--config_path={path}"])
    assert outcome.code == 0, outcome.text
    assert "Retention Mode:       l2sp" in outcome.text


def killed_in_step(number: int) -> Callable[[], None]:
    """Let the process die in the middle of step `number`."""

    def arrange() -> None:
        train_step = _loop.train_step

        def deadly(run, *args, **kwargs):  # noqa: ANN001, ANN002, ANN003, ANN202
            result = train_step(run, *args, **kwargs)
            if run.step + 1 == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        _loop.train_step = deadly

    return arrange


def killed_while_saving(step: int) -> Callable[[], None]:
    """Let the process die with half of the checkpoint of `step` on disk."""

    def arrange() -> None:
        save_checkpoint = _compat.save_checkpoint

        def deadly(*, checkpoint_dir: Path, **kwargs):  # noqa: ANN003, ANN202
            save_checkpoint(checkpoint_dir=checkpoint_dir, **kwargs)
            if kwargs["step"] == step:
                weights = next((checkpoint_dir / "pretrained_model").glob("*model.safetensors"))
                os.truncate(weights, weights.stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)

        _compat.save_checkpoint = deadly

    return arrange


def killed_before_last_moves(step: int) -> Callable[[], None]:
    """Let the process die with a whole checkpoint that `last` does not point at yet."""

    def arrange() -> None:
        put_in_place = _checkpoint._put_in_place

        def deadly(partial: Path, final: Path) -> None:
            put_in_place(partial, final)
            if final.name == f"{step:06d}":
                os.kill(os.getpid(), signal.SIGKILL)

        _checkpoint._put_in_place = deadly

    return arrange


@pytest.fixture(scope="module", params=[False, True], ids=["full", "adapters"])
def whole(request: pytest.FixtureRequest, problem: Problem, runs: Path) -> tuple[Path, bool]:
    output = runs / f"whole-{request.param}"
    outcome = craft(["train", *flags(problem, output, adapters=request.param)])
    assert outcome.code == 0, outcome.text
    return output, request.param


@pytest.mark.parametrize(
    "arrange",
    [killed_in_step(27), killed_while_saving(40), killed_before_last_moves(40)],
    ids=["in-step", "while-saving", "before-last-moves"],
)
def test_killed_and_resumed_equals_whole(
    whole: tuple[Path, bool], problem: Problem, tmp_path: Path, arrange: Callable[[], None]
) -> None:
    output, adapters = tmp_path / "run", whole[1]

    def doomed() -> None:
        arrange()
        craft(["train", *flags(problem, output, adapters=adapters)])

    status = forked(doomed)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (output / "checkpoints/last").resolve().name == "000020"
    resume(output)
    for step in ("000020", "000040", "last", "best"):
        assert_same_checkpoint(whole[0] / "checkpoints" / step, output / "checkpoints" / step)
    assert _checkpoint.best_so_far(output / "checkpoints") == _checkpoint.best_so_far(whole[0] / "checkpoints")
    assert not list((output / "checkpoints").glob(".incomplete*"))
    assert lines(output) == lines(whole[0])


def lines(output: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.endswith("_s")} for row in rows]


def test_lambda_and_epsilon_move(whole: tuple[Path, bool]) -> None:
    """Otherwise the tests above would compare constants."""
    history = json.loads((whole[0] / "checkpoints/last/training_state/craft_state.json").read_text())["log"]["history"]
    assert [row["step"] for row in history] == list(range(1, 41))
    assert len({row["craft/multiplier"] for row in history}) > 3
    assert len({row["craft/epsilon"] for row in history}) > 3


def test_resume_at_the_end_of_an_epoch(problem: Problem, tmp_path: Path) -> None:
    """The loader draws a random number at an epoch's first batch, in a whole run and a resumed one alike."""
    frames = 40
    assert frames % 8 == 0, "step 10 must end the second epoch"
    settings = {**SETTINGS, "steps": 13, "save_freq": 10}
    assert craft(["train", *problem.flags(tmp_path / "whole", **settings)]).code == 0

    def doomed() -> None:
        killed_in_step(12)()
        craft(["train", *problem.flags(tmp_path / "run", **settings)])

    assert os.WIFSIGNALED(forked(doomed))
    resume(tmp_path / "run")
    assert_same_checkpoint(tmp_path / "whole/checkpoints/last", tmp_path / "run/checkpoints/last")


def test_checkpoint_without_our_state_is_not_resumed(problem: Problem, tmp_path: Path) -> None:
    output = tmp_path / "run"
    assert craft(["train", *problem.flags(output, steps=2, craft__enabled="false")]).code == 0
    path = output / "checkpoints/last/pretrained_model/train_config.json"
    words = ["train", "--resume=true", f"--config_path={path}", "--steps=4", "craft.retention_mode=l2sp"]
    outcome = craft(words)
    assert outcome.code == 2
    assert "holds no craft_state.json" in outcome.text
    assert "Traceback" not in outcome.text
