# SPDX-License-Identifier: Apache-2.0
"""Flags, files, presets and help agree about the settings of a run."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from tests._command import craft
from tests._problem import Problem

from lerobot_craft.errors import SettingsError
from lerobot_craft.presets import PRESETS
from lerobot_craft.training import CraftConfig, CraftTrainConfig, parse
from lerobot_craft.training._compat import parser_memory
from lerobot_craft.training._help import craft_help
from lerobot_craft.training._parse import complete


def test_defaults_are_the_ones_the_user_was_promised() -> None:
    config = CraftConfig()
    promised = {
        "retention_mode": "hidden",
        "anchor_batch_size": 16,
        "retention_freq": 5,
        "initial_lambda": 1.0,
        "lambda_lr": 0.01,
        "lambda_max": 10.0,
        "epsilon_start": 1.0,
        "epsilon_end": 0.1,
        "epsilon_decay_steps": 0,
        "use_grad_projection": True,
        "conflict_threshold": -0.1,
        "merge_mode": "weighted",
        "hidden_loss_type": "mse",
    }
    assert {name: vars(config)[name] for name in promised} == promised
    assert config.enabled, "a command called craft that retains nothing would be a silent baseline"


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        CraftConfig(retention_mode="x", anchor_batch_size=0, held_out_anchors=1.0, lambda_lr=-1.0)
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_preset_fills_what_is_not_explicit(name: str) -> None:
    words = complete(["--craft.enabled=true", f"--craft.preset={name}", "--craft.retention_freq=7"])
    settings = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    assert settings["--craft.retention_freq"] == "7"
    assert settings["--craft.retention_mode"] == (PRESETS[name].retention_mode or "none")
    for key, value in PRESETS[name].settings.items():
        if key != "retention_freq":
            assert yaml.safe_load(settings[f"--craft.{key}"]) == value


def test_craft_is_what_suits_the_policy(problem: Problem) -> None:
    words = ["--craft.preset=craft", f"--policy.path={problem.teacher}"]
    for_act = complete(words)
    assert "--craft.retention_mode=hidden" in for_act
    assert "--craft.freeze_behind_tap=true" in for_act
    assert "--craft.hidden_relative=true" in for_act
    assert "--craft.retention_mode=action" in complete(["--craft.preset=craft", "--policy.type=smolvla"])
    # Whoever says what is retained gets the rest of the method, and nothing frozen for the sake of another mode.
    chosen = complete([*words, "--craft.retention_mode=action"])
    assert not [word for word in chosen if "freeze_behind_tap" in word]
    assert "--craft.lambda_controller=pi" in chosen


def test_push_to_the_hub_needs_a_name_or_a_word() -> None:
    assert "--policy.push_to_hub=false" in complete(["--policy.path=P"])
    assert "--policy.push_to_hub=false" not in complete(["--policy.path=P", "--policy.repo_id=me/mine"])
    assert "--policy.push_to_hub=false" not in complete(["--policy.path=P", "--craft.enabled=false"])


def settings_of(problem: Problem, output: Path, *words: str) -> CraftTrainConfig:
    return parse([*problem.flags(output), "--craft.retention_mode=l2sp", *words])


def test_print_config_reads_back(problem: Problem, tmp_path: Path) -> None:
    flags = problem.flags(tmp_path / "run", craft__preset="l2sp", craft__initial_lambda=0.25, seed=7)
    printed = craft(["train", *flags, "--print_config"])
    assert printed.code == 0
    text = printed.text[printed.text.index("dataset:") :]
    assert yaml.safe_load(text)["craft"]["initial_lambda"] == 0.25
    assert not (tmp_path / "run").exists()
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    read = parse([f"--config_path={file}"])
    assert (read.craft.initial_lambda, read.craft.lambda_controller, read.seed) == (0.25, "fixed", 7)
    assert read.craft.retention_mode == "l2sp"
    assert str(read.policy.pretrained_path) == str(problem.teacher)


def test_yaml_file_with_a_group_and_flags_that_override_it(problem: Problem, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    settings = {
        "dataset": {"repo_id": "craft/small", "root": str(problem.new), "video_backend": "pyav"},
        "policy": {"path": str(problem.teacher)},
        "output_dir": str(tmp_path / "run"),
        "steps": 5,
        "craft": {"preset": "l2sp", "initial_lambda": 0.5},
    }
    file.write_text(yaml.safe_dump(settings))
    config = parse([f"--config_path={file}", "steps=9", "craft.retention_freq=3"])
    assert (config.steps, config.craft.initial_lambda, config.craft.retention_freq) == (9, 0.5, 3)
    assert config.craft.lambda_controller == "fixed", "the preset in the file fills the rest"

    # LeRobot's parser remembers the file's policy for the life of the process; the next command must not meet it.
    assert [memory for memory in parser_memory() if memory] == []
    where = ["--dataset.repo_id=craft/small", f"--dataset.root={problem.new}", f"--output_dir={tmp_path / 'new'}"]
    fresh = parse(["--policy.type=act", "--policy.push_to_hub=false", "--craft.enabled=false", *where])
    assert fresh.policy.pretrained_path is None


def test_projection_off_can_be_typed_and_written(problem: Problem, tmp_path: Path) -> None:
    """YAML reads `off` as a truth value, on the command line too."""
    flags = problem.flags(tmp_path / "run", craft__retention_mode="l2sp")
    assert parse([*flags, "--craft.projection=off"]).craft.projection == "off"
    assert parse([*flags, "--craft.projection=always"]).craft.projection == "always"
    file = tmp_path / "run.yaml"
    file.write_text("craft:\n  projection: off\n")
    assert parse([f"--config_path={file}", *flags]).craft.projection == "off"


def test_checkpoint_is_readable_by_stock_lerobot(problem: Problem, tmp_path: Path) -> None:
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    flags = problem.flags(tmp_path / "run", steps=2, craft__retention_mode="l2sp", craft__initial_lambda=2)
    assert craft(["train", *flags]).code == 0
    folder = tmp_path / "run/checkpoints/last/pretrained_model"
    saved = json.loads((folder / "train_config.json").read_text())
    assert set(saved) <= {field.name for field in dataclasses.fields(TrainPipelineConfig)}
    assert TrainPipelineConfig.from_pretrained(folder).steps == 2
    policy = ACTPolicy.from_pretrained(folder)
    make_pre_post_processors(policy.config, pretrained_path=str(folder))
    ours = json.loads((folder / "craft_config.json").read_text())
    assert ours["teacher"] == str(problem.teacher)
    assert ours["craft"]["initial_lambda"] == 2
    resumed = parse([f"--config_path={folder / 'train_config.json'}", "--resume=true", "--steps=4"])
    assert (resumed.craft.initial_lambda, resumed.craft.retention_mode) == (2, "l2sp")


def test_help_has_one_line_for_each_setting() -> None:
    text = craft_help()
    for field in dataclasses.fields(CraftConfig):
        lines = text.split(f"  --craft.{field.name}=", 1)[1].splitlines()
        assert lines[1].strip().endswith("."), field.name
    assert text.index("--craft.enabled") < text.index("--craft.lambda_lr")


def test_help_command_shows_both_groups() -> None:
    done = craft(["train", "--help"])
    assert done.code == 0
    assert "--craft.retention_mode=hidden" in done.text
    assert "--dataset.repo_id" in done.text
    assert "--env_eval_freq" in done.text


def test_wandb_gets_our_numbers(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lerobot_craft.training import _compat

    sent: list[tuple[dict[str, object], int]] = []
    monkeypatch.setattr(_compat.WandBLogger, "log_dict", lambda self, d, step, mode="train": sent.append((d, step)))
    changes = {"wandb__enable": "true", "wandb__mode": "disabled", "wandb__disable_artifact": "true"}
    flags = problem.flags(tmp_path / "run", steps=4, log_freq=2, craft__retention_mode="l2sp", **changes)
    done = craft(["train", *flags, "craft.retention_freq=1"])
    assert done.code == 0, done.text
    steps = [(row, step) for row, step in sent if "loss" in row]
    assert [step for _, step in steps] == [2, 4]
    for row, _ in steps:
        assert {"craft/retention_loss", "craft/multiplier", "craft/epsilon", "craft/cosine"} <= set(row)
        assert all(isinstance(value, int | float | str) and not isinstance(value, bool) for value in row.values())


def test_mixed_precision_trains(problem: Problem, act_cache: Path, tmp_path: Path) -> None:
    changes = {"policy__use_amp": "true", "craft__retention_mode": "action", "craft__anchor_cache_dir": act_cache}
    done = craft(["train", *problem.flags(tmp_path / "run", steps=2, log_freq=1, **changes), "craft.retention_freq=1"])
    assert done.code == 0, done.text
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert all(row["craft/retention_loss"] is not None for row in rows if "loss" in row)


def test_craft_fixes_lambda_for_policies_that_see_and_read_unless_hidden_states_are_kept() -> None:
    words = ["--craft.preset=craft", "--policy.type=pi0_fast"]
    for mode in ([], ["--craft.retention_mode=token_ce"], ["--craft.retention_mode=replay"]):
        chosen = complete([*words, *mode])
        assert "--craft.lambda_controller=fixed" in chosen
        assert "--craft.use_grad_projection=false" in chosen
        assert "--craft.anchor_batch_size=null" in chosen
    assert "--craft.lambda_controller=pi" in complete([*words, "--craft.retention_mode=hidden"])


@pytest.mark.parametrize(
    ("size", "batch", "anchors"), [(None, 64, 16), (None, 8, 2), (None, 6, 2), (None, 1, 1), (5, 8, 5)]
)
def test_anchors_are_a_quarter_of_the_batch_where_nothing_is_said(size: int | None, batch: int, anchors: int) -> None:
    assert CraftConfig(anchor_batch_size=size).anchors_beside(batch) == anchors
