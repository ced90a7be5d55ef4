# SPDX-License-Identifier: Apache-2.0
"""Merged checkpoints lie where they should between two others, and LeRobot loads them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests._command import craft
from tests._problem import Problem

from lerobot_craft.errors import UsageError
from lerobot_craft.merging import merge_checkpoints

WEIGHTS = "model.safetensors"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / WEIGHTS)


def checkpoint(folder: Path, **tensors: torch.Tensor) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"type": "any"}))
    save_file(tensors, folder / WEIGHTS)
    return folder


@pytest.mark.parametrize(("alpha", "end"), [(0.0, "teacher"), (1.0, "student")])
def test_the_ends_are_the_two_checkpoints(
    alpha: float, end: str, problem: Problem, other_teacher: Path, tmp_path: Path
) -> None:
    merge_checkpoints(problem.teacher, other_teacher, alpha, tmp_path / "merged")
    found, expected = weights(tmp_path / "merged"), weights({"teacher": problem.teacher, "student": other_teacher}[end])
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_between_them_in_float32(tmp_path: Path) -> None:
    exact = {"a": torch.tensor([1.0, 2.0]), "half": torch.tensor([0.1, 1.0], dtype=torch.bfloat16)}
    teacher = checkpoint(tmp_path / "teacher", **exact, same=torch.tensor([0.1]), count=torch.tensor([3]))
    moved = {"a": torch.tensor([3.0, -2.0]), "half": torch.tensor([0.3, 1.0], dtype=torch.bfloat16)}
    student = checkpoint(tmp_path / "student", **moved, same=torch.tensor([0.1]), count=torch.tensor([4]))
    done = merge_checkpoints(teacher, student, 0.25, tmp_path / "merged")
    found = weights(done.path)
    assert found["a"].tolist() == [1.5, 1.0]
    assert torch.equal(found["same"], torch.tensor([0.1]))
    in_float32 = 0.75 * exact["half"].float() + 0.25 * moved["half"].float()
    assert torch.equal(found["half"], in_float32.bfloat16())
    assert found["count"].tolist() == [4]
    assert done.notes == ("`count` holds torch.int64, which have no in-between: the student's was taken.",)


def test_only_the_named_modules(problem: Problem, other_teacher: Path, tmp_path: Path) -> None:
    done = merge_checkpoints(problem.teacher, other_teacher, 0.0, tmp_path / "merged", "model.encoder.*")
    found, known, moved = (weights(folder) for folder in (done.path, problem.teacher, other_teacher))
    named = {name for name in found if name.startswith("model.encoder.")}
    assert 0 < done.interpolated == len(named) < done.kept + len(named) == len(found)
    assert all(torch.equal(found[name], (known if name in named else moved)[name]) for name in found)


def test_what_cannot_be_merged(problem: Problem, tmp_path: Path) -> None:
    teacher = checkpoint(tmp_path / "teacher", a=torch.zeros(2))
    larger = checkpoint(tmp_path / "larger", a=torch.zeros(3))
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"their sizes differ \(a \[3\] here, \[2\] there\)"):
        merge_checkpoints(teacher, larger, 0.5, out)
    with pytest.raises(UsageError, match=r"is of type 'act' and the teacher .* of type 'any'"):
        merge_checkpoints(teacher, problem.teacher, 0.5, out)
    with pytest.raises(UsageError, match=r"matches none of the 1 tensors: expected patterns such as `a\.\*`"):
        merge_checkpoints(teacher, teacher, 0.5, out, "b.*")
    with pytest.raises(UsageError, match="`alpha` got 2, expected 0"):
        merge_checkpoints(teacher, teacher, 2, out)
    with pytest.raises(UsageError, match=r"lacks config\.json and model\.safetensors"):
        merge_checkpoints(teacher, tmp_path, 0.5, out)
    with pytest.raises(UsageError, match="is there already"):
        merge_checkpoints(teacher, teacher, 0.5, larger)
    (larger / WEIGHTS).write_bytes(b"cut short")
    with pytest.raises(UsageError, match="cannot be read"):
        merge_checkpoints(teacher, larger, 0.5, out)
    assert not out.exists()
    assert not out.with_name("out.partial").exists()


def test_the_command_writes_checkpoints_that_lerobot_loads_and_a_table(
    problem: Problem, other_teacher: Path, tmp_path: Path
) -> None:
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    words = [f"--teacher.path={problem.teacher}", f"--policy.path={other_teacher}", "--alpha=0.25,0.5"]
    words += [f"--dataset.repo_id={problem.old}", "--num_frames=8", f"--output_dir={tmp_path}/merged"]
    code, text = craft(["merge", *words])
    assert code == 0, text
    folder = tmp_path / "merged" / "alpha_0.25" / "pretrained_model"
    policy = ACTPolicy.from_pretrained(folder)
    pre, post = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    actions = post(policy.select_action(pre({name: torch.zeros(1, 6) for name in policy.config.input_features})))
    assert actions.shape == (1, 3)

    rows = json.loads((tmp_path / "merged" / "merge.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["teacher", "alpha 0.25", "alpha 0.5", "student"]
    drifts = [row["drift"]["mean"] for row in rows]
    assert drifts[0] == 0 < drifts[1] < drifts[2] < drifts[3]
    assert f"alpha 0.5   {drifts[2]:.3f} σ" in text

    elsewhere = [word.replace("merged", "other") for word in words if not word.startswith("--dataset")]
    wrong = craft(["merge", *elsewhere, f"--dataset.repo_id={tmp_path}"])
    assert wrong.code == 2
    assert not (tmp_path / "other").exists(), "so that the same command can be given again"

    again = craft(["merge", *words])
    assert again.code == 2
    assert "alpha_0.25/pretrained_model" in again.text
    assert "would be overwritten" in again.text


def test_whose_processors(problem: Problem, other_teacher: Path, tmp_path: Path) -> None:
    name = "policy_postprocessor.json"
    (student := tmp_path / "student").mkdir()
    for file in other_teacher.iterdir():
        (student / file.name).write_bytes(file.read_bytes())
    (student / name).write_text((other_teacher / name).read_text() + "\n")
    for whose, source in (("teacher", problem.teacher), ("policy", student)):
        done = merge_checkpoints(problem.teacher, student, 0.5, tmp_path / whose, processors=whose)
        assert (done.path / name).read_text() == (source / name).read_text()


def test_success_on_tasks(tmp_path: Path, metaworld_policy: Path) -> None:
    words = [f"--teacher.path={metaworld_policy}", f"--policy.path={metaworld_policy}", "--alpha=0.5"]
    words += ["--tasks=reach", "--episodes=2", "--max_steps=3", f"--output_dir={tmp_path}/merged"]
    code, text = craft(["merge", *words])
    assert code == 0, text
    assert "alpha 0.5   0.00  0.00  0.00-0.66" in text
    assert json.loads((tmp_path / "merged" / "merge.json").read_text())["rows"][1]["success"] == {"reach": [False] * 2}


def test_wrong_settings_are_told_together(tmp_path: Path) -> None:
    words = ["--teacher.path=a", "--policy.path=b", f"--output_dir={tmp_path}"]
    code, text = craft(["merge", *words, "--alpha=0.5,3", "--processors=mine", "--num_frames=0"])
    assert code == 2
    assert "3 setting(s) cannot be used" in text
    assert "`--alpha` names 3: expected 0 to 1" in text
    code, text = craft(["merge", *words, "--alpha=0.5"])
    assert code == 2
    assert "`--teacher.path=a` was not found" in text
    assert "`--alpha` must be given" in craft(["merge", *words]).text
