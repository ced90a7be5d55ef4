# SPDX-License-Identifier: Apache-2.0
"""`craft.enabled=false` is `lerobot-train` of LeRobot 0.6.1, bit for bit."""

import json
import re
from pathlib import Path

import pytest
from tests._command import Outcome, craft, process
from tests._problem import Problem
from tests.training._asserts import assert_same_checkpoint

TIMES = re.compile(r"updt_s:\S+ data_s:\S+ smp/s:\S+")


def metric_lines(text: str) -> list[str]:
    return [TIMES.sub("", line) for line in re.findall(r"step:\d+ smpl:.*", text)]


@pytest.fixture(scope="module")
def stock(problem: Problem, runs: Path) -> tuple[Path, Outcome]:
    output = runs / "stock"
    flags = problem.flags(output, eval_steps=10, dataset__eval_split=0.25)
    return output, process(["-m", "lerobot.scripts.lerobot_train", *flags])


@pytest.fixture(scope="module")
def ours(problem: Problem, runs: Path) -> tuple[Path, Outcome]:
    output = runs / "disabled"
    flags = problem.flags(output, eval_steps=10, dataset__eval_split=0.25, craft__enabled="false")
    return output, craft(["train", *flags])


def test_equals_lerobot_train(stock: tuple[Path, Outcome], ours: tuple[Path, Outcome]) -> None:
    assert stock[1].code == 0, stock[1].text
    assert ours[1].code == 0, ours[1].text
    for step in ("000010", "000020", "last"):
        assert_same_checkpoint(stock[0] / "checkpoints" / step, ours[0] / "checkpoints" / step)
    lines = metric_lines(stock[1].text)
    assert len(lines) == 4
    assert metric_lines(ours[1].text) == lines
    held_out = re.findall(r"eval_loss=\S+", stock[1].text)
    assert len(held_out) == 2
    assert re.findall(r"eval_loss=\S+", ours[1].text) == held_out


def test_saved_settings_are_lerobots_own(stock: tuple[Path, Outcome], ours: tuple[Path, Outcome]) -> None:
    name = "checkpoints/last/pretrained_model/train_config.json"
    theirs, own = (json.loads((folder / name).read_text()) for folder in (stock[0], ours[0]))
    assert theirs.pop("output_dir") != own.pop("output_dir")
    assert own == theirs


def test_says_that_it_is_plain(ours: tuple[Path, Outcome]) -> None:
    assert "CRaFT: disabled" in ours[1].text
    rows = [json.loads(line) for line in (ours[0] / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [5, 10, 15, 20]
    assert not any(name.startswith("craft/") for row in rows for name in row)


def test_plain_preset_with_dataset_statistics_is_lerobot_too(
    problem: Problem, stock: tuple[Path, Outcome], tmp_path: Path
) -> None:
    """λ = 0 without projection changes nothing: not the weights, not the random numbers, not the data order."""
    flags = problem.flags(
        tmp_path / "run",
        eval_steps=10,
        dataset__eval_split=0.25,
        craft__retention_mode="l2sp",
        craft__lambda_controller="fixed",
        craft__initial_lambda=0,
        craft__use_grad_projection="false",
        craft__normalization="dataset",
    )
    outcome = craft(["train", *flags])
    assert outcome.code == 0, outcome.text
    for name in ("pretrained_model/model.safetensors", "training_state/optimizer_state.safetensors"):
        theirs = stock[0] / "checkpoints/last" / name
        assert (tmp_path / "run/checkpoints/last" / name).read_bytes() == theirs.read_bytes()
