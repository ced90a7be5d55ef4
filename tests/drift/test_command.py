# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft drift` on real checkpoints: what it finds where the answer is known, and what it refuses."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests._command import craft
from tests._problem import Problem
from tests.drift.conftest import Instructed, with_other_statistics, with_other_weights

from lerobot_craft.testing import TinyPaths

TYPES = ("act", "smolvla", "pi0_fast")


def drift(teacher: Path, policies: str, data: Path, folder: Path, *more: str) -> tuple[int, str, dict[str, Any]]:
    output = folder / "drift.json"
    words = [f"--teacher.path={teacher}", f"--policy.path={policies}", f"--dataset.repo_id={data}"]
    code, text = craft(["drift", *words, f"--output={output}", "--num_frames=16", "--batch_size=8", *more])
    assert output.is_file(), text
    return code, text, json.loads(output.read_text())


def numbers(value: Any, *path: str) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, *path, key)
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from numbers(part, *path, str(place))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


@pytest.mark.parametrize("policy_type", TYPES)
def test_a_checkpoint_has_not_drifted_from_itself_and_a_moved_one_has(
    policy_type: str, make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path
) -> None:
    tiny = make_tiny_once(policy_type)
    moved = with_other_weights(tiny.policy, tmp_path / "moved", scale=0.3)
    code, text, found = drift(tiny.policy, f"{tiny.policy},{moved}", tiny.data, tmp_path, "--num_frames=8")
    assert code == 0, text
    assert (found["episodes"], found["frames"]) == (4, 8)
    same, other = found["checkpoints"]

    assert same["verdict"] == "Its actions are exactly the teacher's."
    for path, value in numbers({name: same[name] for name in ("action", "token_kl", "weights", "statistics")}):
        assert value == 0, path
    for layer in same["features"]:
        assert set(layer["relative_l2"].values()) == {0.0}
        assert set(layer["cosine"].values()) == {1.0}
        assert layer["cka"] == 1.0
    assert same["language"]["teacher"] == same["language"]["student"]

    assert "all of it by its weights" in other["verdict"]
    assert other["action"]["all"]["mean"] == other["weights"]["all"]["mean"] > 0 == other["statistics"]["all"]["mean"]
    assert list(other["action"]["by_joint"]) == ["dx", "dy", "grip"]
    assert list(other["action"]["by_task"]) == ["lift the blue cup slowly", "push the red block"]
    assert all(layer["relative_l2"]["low"] > 0 and layer["cka"] < 1 for layer in other["features"])
    assert (other["token_kl"] is not None) == (policy_type == "pi0_fast")
    if other["token_kl"] is not None:
        assert other["token_kl"]["all"]["low"] > 0
    for _, value in numbers(other):
        assert math.isfinite(value)


def test_swapped_statistics_are_named_as_the_cause(instructed: Instructed, tmp_path: Path) -> None:
    swapped = with_other_statistics(instructed.teacher, tmp_path / "swapped", instructed.data)
    _, text, found = drift(instructed.teacher, str(swapped), instructed.data, tmp_path)
    row = found["checkpoints"][0]
    assert row["weights"]["all"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert row["statistics"]["all"]["low"] > 0.5
    assert row["statistics"] == {"all": row["action"]["all"]}
    assert "all of it by its statistics: behind the teacher's processors its weights drift by 0" in row["verdict"]
    assert row["verdict"] in text


def test_a_student_of_shuffled_instructions_ignores_them(instructed: Instructed, tmp_path: Path) -> None:
    moved = with_other_weights(instructed.teacher, tmp_path / "moved", scale=0.01)
    paths = f"{moved},{instructed.blind}"
    _, text, found = drift(instructed.teacher, paths, instructed.data, tmp_path)
    follows, blind = (row["language"] for row in found["checkpoints"])
    assert not follows["ignores"]
    assert follows["ratio"] > 0.8
    assert blind["ignores"]
    assert blind["student"]["high"] < 0.2 < 0.5 < blind["teacher"]["low"]
    assert text.count("it ignores the instruction") == 1


def test_one_instruction_leaves_language_unmeasured(instructed: Instructed, tmp_path: Path) -> None:
    _, text, found = drift(
        instructed.teacher, str(instructed.blind), instructed.data, tmp_path, "--dataset.episodes=[0,2]"
    )
    assert found["checkpoints"][0]["language"] is None
    assert "language: not measured: one instruction" in text


@pytest.fixture
def run(instructed: Instructed, tmp_path: Path) -> Path:
    """A run of two checkpoints, the second far off, and what an interrupted save leaves."""
    steps = tmp_path / "run" / "checkpoints"
    with_other_weights(instructed.teacher, steps / "000010" / "pretrained_model", scale=0.01)
    with_other_weights(instructed.teacher, steps / "000020" / "pretrained_model", scale=1.0)
    (steps / "000030").mkdir()
    (steps / "last").symlink_to("000020")
    return steps.parent


def test_a_run_has_a_row_for_each_checkpoint_and_one_to_keep(run: Path, instructed: Instructed, tmp_path: Path) -> None:
    code, text, found = drift(instructed.teacher, str(run), instructed.data, tmp_path, "--max_drift=0.1")
    assert code == 0, text
    assert [row["step"] for row in found["checkpoints"]] == [10, 20]
    assert [row["over"] for row in found["checkpoints"]] == [False, True]
    assert found["keep"] == str(run / "checkpoints" / "000010" / "pretrained_model")
    assert "run step 10" in text
    assert "over the limit of 0.1" in text


def test_over_the_limit_is_exit_code_1(run: Path, instructed: Instructed, tmp_path: Path) -> None:
    last = run / "checkpoints" / "last"
    code, text, found = drift(instructed.teacher, str(last), instructed.data, tmp_path, "--max_drift=0.1")
    assert code == 1
    assert found["keep"] is None
    assert found["checkpoints"][0]["step"] == 20
    assert "Keep, under --max_drift=0.1: none" in text


def test_a_broken_checkpoint_is_a_row_that_says_so(instructed: Instructed, tmp_path: Path) -> None:
    broken = with_other_weights(instructed.teacher, tmp_path / "broken", scale=math.nan)
    code, text, found = drift(instructed.teacher, str(broken), instructed.data, tmp_path, "--max_drift=9")
    assert code == 1
    assert found["checkpoints"][0]["action"]["all"]["mean"] is None
    assert "Its actions are not finite numbers: this checkpoint is broken." in text


def test_a_lora_checkpoint_is_compared_with_its_base(instructed: Instructed, tmp_path: Path) -> None:
    from lerobot.policies.act.modeling_act import ACTPolicy
    from peft import LoraConfig

    policy = ACTPolicy.from_pretrained(instructed.teacher)
    policy.config.pretrained_path = instructed.teacher
    wrapped = policy.wrap_with_peft(LoraConfig(r=2, target_modules=["action_head"]))
    folder = tmp_path / "lora"
    shutil.copytree(instructed.teacher, folder, ignore=lambda *_: ["model.safetensors"])
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            parameter.data.fill_(0.1)
    wrapped.save_pretrained(folder)
    wrapped.config.save_pretrained(folder)
    code, text, found = drift(instructed.teacher, str(folder), instructed.data, tmp_path)
    assert code == 0, text
    assert found["checkpoints"][0]["weights"]["all"]["mean"] > 0
    assert [layer["relative_l2"]["mean"] for layer in found["checkpoints"][0]["features"]] == [0.0, 0.0]


def test_a_file_that_cannot_be_written_does_not_cost_the_numbers(instructed: Instructed, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    words = [f"--teacher.path={instructed.teacher}", f"--policy.path={instructed.teacher}", "--num_frames=8"]
    words += [f"--dataset.repo_id={instructed.data}", f"--output={tmp_path}/taken/drift.json"]
    code, text = craft(["drift", *words])
    assert code == 1
    assert "Its actions are exactly the teacher's." in text
    assert f"`--output={tmp_path}/taken/drift.json` could not be written" in text


def refusal(*words: str) -> str:
    code, text = craft(["drift", *words])
    assert code == 2, text
    return text.partition("error: ")[2]


def test_checkpoints_that_cannot_be_compared(
    instructed: Instructed, problem: Problem, make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path
) -> None:
    data = f"--dataset.repo_id={instructed.data}"
    teacher = f"--teacher.path={instructed.teacher}"
    other_type = make_tiny_once("smolvla").policy
    assert refusal(teacher, f"--policy.path={other_type}", data).startswith(
        f"`--policy.path={other_type}` cannot be compared with the teacher: it is of type 'smolvla' and the teacher of "
        "type 'act'."
    )
    text = refusal(teacher, f"--policy.path={problem.teacher}", data)
    assert "their sizes differ (" in text
    assert "model.encoder_latent_input_proj.weight [16, 4] here, [16, 32] there and " in text
    assert len(text.splitlines()) == 1


def test_a_dataset_that_does_not_fit(
    instructed: Instructed, problem: Problem, make_tiny_once: Callable[[str], TinyPaths]
) -> None:
    words = [f"--teacher.path={instructed.teacher}", f"--policy.path={instructed.teacher}"]
    assert "lacks observation.environment_state" in refusal(*words, f"--dataset.repo_id={make_tiny_once('act').data}")
    text = refusal(*words, f"--dataset.repo_id={problem.old}")
    assert "`observation.state` has shape [6], and the policy's is [4]; " in text
    assert "`action` has shape [3], and the policy's is [2]" in text


def test_what_is_not_there(instructed: Instructed, tmp_path: Path) -> None:
    empty = tmp_path / "run"
    (empty / "checkpoints").mkdir(parents=True)
    data, teacher = f"--dataset.repo_id={instructed.data}", f"--teacher.path={instructed.teacher}"
    assert f"`--policy.path={empty}` holds no checkpoint" in refusal(teacher, f"--policy.path={empty}", data)
    several = tmp_path / "several"
    for step in ("000010", "000020"):
        shutil.copytree(instructed.teacher, several / "checkpoints" / step / "pretrained_model")
    assert f"`--teacher.path={several}` holds checkpoints of steps 10, 20: name one" in refusal(
        f"--teacher.path={several}", f"--policy.path={several}", data
    )
    missing = f"--teacher.path={tmp_path}/none"
    assert f"`{missing}` could not be loaded" in refusal(missing, f"--policy.path={instructed.teacher}", data)
    assert "`--teacher.path` and `--dataset.repo_id` must be given" in refusal("--policy.path=x")
    words = [teacher, f"--policy.path={instructed.teacher}", data]
    assert "`--dataset.episodes` names 6, 9: " in refusal(*words, "--dataset.episodes=[0,6,9]")
    assert "`--device=gpu` is unknown: expected cpu, cuda" in refusal(*words, "--device=gpu")
    text = refusal(teacher, "--policy.path=", data, "--num_frames=0", "--max_drift=nan")
    assert text.startswith("3 setting(s) cannot be used")
