# SPDX-License-Identifier: Apache-2.0
"""Every command in the documents runs, in their order and in small, on a tiny policy; both languages say the same.

A command goes on from what those before it left, so the commands are one sequence: `-k` on one of them may miss that.
"""

import dataclasses
import importlib
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tests._command import craft
from tests._problem import Problem
from tests._state_policy import write_state_policy
from tests.docs._documents import (
    DOCS,
    ROOT,
    commands,
    english,
    links,
    literals,
    numbers,
    quotes,
    snippets,
    translations,
)

from lerobot_craft.cli._arguments import given, normalize
from lerobot_craft.comparison._study import read_study
from lerobot_craft.presets import presets_table

COMMANDS = list(dict.fromkeys(command for path in english() for command in commands(path)))
# Minutes long, so their words are parsed and their settings checked; they have tests of their own.
PARSED = {"demo": "lerobot_craft.demo.DemoSettings", "compare": "lerobot_craft.comparison.CompareSettings"}
# Every number that costs time.
TWO = ("steps", "batch_size", "craft.anchor_batch_size", "eval.n_episodes", "eval.batch_size", "episodes")
SMALL = {**dict.fromkeys(TWO, 2), "num_anchors": 8}
ALSO = {
    "train": (
        "--steps=2",
        "--batch_size=2",
        "--craft.anchor_batch_size=2",
        "--num_workers=0",
        "--save_freq=2",
        "--log_freq=1",
    ),
    "cache": ("--num_anchors=8",),
    "drift": ("--num_frames=8",),
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory, problem: Problem) -> Path:
    """A folder in which the placeholders are real: TEACHER is a checkpoint, and so on."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "TEACHER").symlink_to(problem.teacher)
    (folder / "outputs").mkdir()
    (folder / "outputs/run").symlink_to(folder / "run")
    for name in ("STUDENT", "CHECKPOINT"):
        (folder / name).symlink_to(folder / "run/checkpoints/last/pretrained_model")
    (folder / "OLD_PROMPTS").write_text("push\nlift\n")
    write_state_policy(folder / "outputs/demo/teacher", [0.0, 0.0, 0.0, 0.0])
    write_state_policy(folder / "outputs/demo/runs/craft/checkpoints/last/pretrained_model", [0.0, 1.0, 0.0, 0.0])
    return folder


def shortened(subcommand: str, words: Sequence[str], problem: Problem) -> list[str]:
    """Return a documented command's words with real datasets and small numbers."""
    datasets = {"OLD_DATA": problem.old, "NEW_DATA": problem.new}
    kept = []
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        if value in datasets:
            root = "craft.anchor_root" if name.startswith("craft.") else "dataset.root"
            kept += [f"--{name}=craft/small", f"--{root}={datasets[value]}"]
        elif "--resume=true" in words and name == "steps":
            # One more than the run has.
            kept.append("--steps=3")
        elif name in SMALL:
            kept.append(f"--{name}={SMALL[name]}")
        else:
            kept.append(word)
    return [*kept, *(word for word in also(subcommand, words) if given(kept, word[2:].partition("=")[0]) is None)]


def also(subcommand: str, words: Sequence[str]) -> Sequence[str]:
    """Return the flags that make a command short where it leaves a number to its default."""
    if given(words, "inspect") or given(words, "resume"):
        return ()
    if subcommand == "eval":
        return ("--env.episode_length=3",) if given(words, "env.type") else ("--max_steps=3",)
    return ALSO.get(subcommand, ())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[:90])
def test_commands(command: str, workshop: Path, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    program, *words = shlex.split(command)
    if program == "make":
        assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text()
        return
    if program == "lerobot-eval":
        lerobot_eval(shortened("eval", words, problem), monkeypatch)
        return
    subcommand, *rest = words
    if subcommand in PARSED:
        module = importlib.import_module(f"lerobot_craft.cli.{subcommand}")
        package, _, settings = PARSED[subcommand].rpartition(".")
        parsed = vars(module.parser().parse_args(normalize(rest)))
        if "study" in parsed:
            parsed["study"] = read_study(ROOT / parsed["study"])
            parsed["methods"] = tuple(parsed["study"])
        getattr(importlib.import_module(package), settings)(**parsed)
        return
    make_room(rest)
    outcome = craft([subcommand, *shortened(subcommand, rest, problem)])
    # A student that has just begun drifts by more or less than `--max_drift`: both are answers.
    expected = (0, 1) if given(rest, "max_drift") else (0,)
    assert outcome.code in expected, outcome.text


def make_room(words: Sequence[str]) -> None:
    """Remove what an earlier document's command of the same output left; later commands find this one's."""
    output = given(words, "output_dir")
    if output is not None and not given(words, "env.type"):
        shutil.rmtree(output, ignore_errors=True)


def lerobot_eval(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from lerobot.scripts.lerobot_eval import eval_main

    monkeypatch.setattr(sys, "argv", ["lerobot-eval", *words, "--output_dir=outputs/stock"])
    eval_main()
    assert Path("outputs/stock/eval_info.json").is_file()


@pytest.mark.parametrize(
    "path", [path for path in english() if snippets(path) and path.name != "drift.md"], ids=lambda path: path.name
)
def test_snippets(path: Path) -> None:
    from lerobot_craft import RetentionConstraint, preset

    model = torch.nn.Linear(2, 2)
    inputs = torch.randn(8, 2)

    def loss(module: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return (module(batch) - 1.0).square().mean()

    names = {
        "RetentionConstraint": RetentionConstraint,
        "preset": preset,
        "config": preset("craft"),
        "model": model,
        "retention": lambda: model(inputs).square().mean(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "batch": inputs,
        "steps": 2,
        "step": 0,
    }
    for snippet in snippets(path):
        before = model.weight.detach().clone()
        space = {**names, "loss": loss if "loss(" in snippet else loss(model, inputs)}
        exec(compile(snippet, str(path), "exec"), space)  # noqa: S102 (our own documents)
        assert space["report"].floats()["multiplier"] >= 0
        assert space["model"] is not model or not torch.equal(before, model.weight)


def test_the_snippet_on_drift(problem: Problem) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from lerobot_craft.caching._teacher import load_teacher

    policy = load_teacher(str(problem.teacher))
    names = {"teacher": policy, "student": policy, "dataset": LeRobotDataset("craft/small", root=problem.old)}
    (snippet,) = snippets(DOCS / "drift.md")
    task = str(names["dataset"].meta.tasks.index[0])
    exec(compile(snippet.replace("push", task), "drift.md", "exec"), names)  # noqa: S102 (our own documents)
    assert names["results"][0].all.mean == 0


@pytest.mark.parametrize(("original", "translation"), translations(), ids=lambda path: str(path.relative_to(ROOT)))
def test_both_languages_have_the_same_commands_messages_and_numbers(original: Path, translation: Path) -> None:
    assert commands(translation) == commands(original)
    assert quotes(translation) == quotes(original)
    assert numbers(translation) == numbers(original)
    assert snippets(translation) == snippets(original)


@pytest.mark.parametrize("message", quotes(DOCS / "troubleshooting.md"))
def test_messages_are_quoted_from_the_source(message: str) -> None:
    assert any(message in literal for literal in literals())


def test_every_setting_that_is_named_exists() -> None:
    from lerobot_craft.training._config import CraftConfig

    known = {field.name for field in dataclasses.fields(CraftConfig)}
    pages = [*english(), *(translation for _, translation in translations())]
    named = {name for page in pages for name in re.findall(r"--craft\.(\w+)", page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert named <= known


def test_links_lead_somewhere() -> None:
    pages = [*english(), *(translation for _, translation in translations())]
    broken = [f"{page.relative_to(ROOT)}: {link}" for page in pages for link in links(page) if not link.exists()]
    assert not broken


def test_the_presets_are_the_same_in_both_languages() -> None:
    assert presets_table() in (DOCS / "constraint.md").read_text(encoding="utf-8")
    assert presets_table() in (DOCS / "zh/constraint.md").read_text(encoding="utf-8")


def test_the_api_reference_is_what_the_script_prints() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        script = importlib.import_module("print_api")
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    assert script.PAGE.read_text(encoding="utf-8") == script.reference(), "run scripts/print_api.py"
