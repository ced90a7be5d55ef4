# SPDX-License-Identifier: Apache-2.0
"""The guard keeps the teacher's statistics, widens what the teacher never saw move, and says so."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.processor import NormalizerProcessorStep, PolicyProcessorPipeline, UnnormalizerProcessorStep
from safetensors.torch import load_file
from tests._command import craft
from tests._problem import Problem

from lerobot_craft.errors import UsageError
from lerobot_craft.training import FeatureRow, guard

PREPROCESSOR = "policy_preprocessor_step_3_normalizer_processor.safetensors"
POSTPROCESSOR = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
CONSTANT = 5
LAST = "checkpoints/last/pretrained_model"


@pytest.fixture(scope="module")
def kept(problem: Problem, runs: Path) -> Path:
    return one_step(problem, runs / "kept", "teacher")


@pytest.fixture(scope="module")
def replaced(problem: Problem, runs: Path) -> Path:
    return one_step(problem, runs / "replaced", "dataset")


def one_step(problem: Problem, output: Path, normalization: str) -> Path:
    flags = problem.flags(output, steps=1, craft__retention_mode="none", craft__normalization=normalization)
    outcome = craft(["train", *flags])
    assert outcome.code == 0, outcome.text
    (output / "text").write_text(outcome.text)
    return output


def test_teachers_statistics_are_saved(kept: Path, problem: Problem) -> None:
    for name in (PREPROCESSOR, POSTPROCESSOR):
        before, after = load_file(problem.teacher / name), load_file(kept / LAST / name)
        assert before.keys() == after.keys()
        for key in before:
            same = torch.ones(before[key].numel(), dtype=torch.bool)
            if name == PREPROCESSOR and key.startswith("observation") and key.endswith(".std"):
                same[CONSTANT] = False
                assert after[key][CONSTANT] > 1
            assert torch.equal(before[key].reshape(-1)[same], after[key].reshape(-1)[same]), key


def test_the_table_is_recorded(kept: Path, replaced: Path) -> None:
    record = json.loads((kept / "run.json").read_text())
    rows = {row["feature"]: row for row in record["normalization"]}
    seen = [row["widened"] for name, row in rows.items() if name.startswith("observation")]
    assert seen == [[CONSTANT]] * len(seen)
    assert seen
    assert rows["action"]["widened"] == []
    assert json.loads((replaced / "run.json").read_text())["normalization"] == []
    assert record["command"].startswith("lerobot-craft train --")
    assert record["settings"]["craft.retention_mode"] == {"value": "none", "default": "hidden"}
    assert record["settings"]["steps"] == {"value": 1, "default": 100000}
    # Where the run is, and what is as always, was not chosen.
    assert not {"output_dir", "craft.normalization", "policy.input_features"} & set(record["settings"])


def test_datasets_statistics_are_lerobots(replaced: Path, problem: Problem) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    stats = LeRobotDataset("craft/small", root=problem.new).meta.stats
    for name in (PREPROCESSOR, POSTPROCESSOR):
        for key, tensor in load_file(replaced / LAST / name).items():
            feature, statistic = key.rsplit(".", 1)
            np.testing.assert_allclose(tensor.numpy(), stats[feature][statistic], rtol=1e-6)


def actions(folder: Path, problem: Problem) -> torch.Tensor:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    policy = ACTPolicy.from_pretrained(folder).eval()
    pre, post = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    old = LeRobotDataset("craft/small", root=problem.old)
    batch = torch.utils.data.default_collate([old[index] for index in range(len(old))])
    with torch.no_grad():
        return post(policy.predict_action_chunk(pre(batch)))


def test_statistics_alone_break_the_old_task(kept: Path, replaced: Path, problem: Problem) -> None:
    """One step of 1e-5 moves no weight that matters; what differs is the statistics."""
    teacher = actions(problem.teacher, problem)
    spread = teacher.std()
    assert (actions(kept / LAST, problem) - teacher).abs().max() < 0.01 * spread
    assert (actions(replaced / LAST, problem) - teacher).abs().mean() > spread


def test_table_names_the_widened_dimension(kept: Path) -> None:
    text = (kept / "text").read_text()
    assert "Normalization: the teacher's statistics are kept" in text
    row = next(line for line in text.splitlines() if line.strip().startswith("observation.state "))
    assert f"widened: dimension(s) {CONSTANT}" in row
    assert "6 dims" in row
    reach = float(row.split("reaches")[1].split()[0])
    assert 1 < reach < 1000
    action = next(line for line in text.splitlines() if line.strip().startswith("action "))
    assert "widened" not in action


MODES = ["MIN_MAX", "QUANTILES", "QUANTILE10", "MEAN_STD"]


def guarded(
    mode: str, half: float, new: float, kind: str = "STATE"
) -> tuple[NormalizerProcessorStep, list[FeatureRow]]:
    """Return the step and the table for a first dimension at 0.5 ± `half` in old data and up to 0.5 + `new` in new."""
    key = "observation.state" if kind == "STATE" else "action"
    features = {key: PolicyFeature(type=FeatureType[kind], shape=(2,))}
    low, high = torch.tensor([0.5 - half, -1.0]), torch.tensor([0.5 + half, 1.0])
    stats = {"min": low, "max": high, "q01": low, "q99": high, "q10": low, "q90": high}
    stats |= {"mean": torch.tensor([0.5, 0.0]), "std": torch.tensor([max(half, 1e-8), 1.0])}
    norm_map = {FeatureType[kind]: NormalizationMode[mode]}
    step = NormalizerProcessorStep(features=features, norm_map=norm_map)
    step.load_state_dict({f"{key}.{name}": value for name, value in stats.items()})
    back = UnnormalizerProcessorStep(features=features, norm_map=norm_map)
    back.load_state_dict(step.state_dict())
    fresh = {name: torch.tensor([0.5 - new, -1.0]) for name in ("min", "q01", "q10")}
    fresh |= {name: torch.tensor([0.5 + new, 1.0]) for name in ("max", "q99", "q90")}
    fresh |= {"mean": torch.tensor([0.5, 0.0]), "std": torch.tensor([1.0, 1.0])}
    rows = guard(
        PolicyProcessorPipeline(steps=[step], name="pre"),
        PolicyProcessorPipeline(steps=[back], name="post"),
        {key: fresh},
    )
    assert back.state_dict().keys() == step.state_dict().keys()
    return step, rows


def normalized(step: NormalizerProcessorStep, values: list[float]) -> torch.Tensor:
    return step._normalize_observation({"observation.state": torch.tensor(values)}, inverse=False)["observation.state"]


@pytest.mark.parametrize("mode", MODES)
def test_old_constant_maps_where_it_did_and_new_data_stays_small(mode: str) -> None:
    before, _ = guarded(mode, 0.0, 0.0)
    step, rows = guarded(mode, 0.0, 3.5)
    assert rows[0].widened == (0,)
    assert torch.equal(normalized(step, [0.5, 0.25]), normalized(before, [0.5, 0.25]))
    assert normalized(step, [4.0, 1.0]).abs().max() <= 2
    assert normalized(step, [-3.0, 1.0]).abs().max() <= 2
    assert torch.equal(step.state_dict()["observation.state.std"][1], torch.tensor(1.0))


@pytest.mark.parametrize("mode", MODES)
def test_what_hardly_moved_stays_about_its_centre(mode: str) -> None:
    before, _ = guarded(mode, 0.01, 0.01)
    step, rows = guarded(mode, 0.01, 3.5)
    assert rows[0].widened == (0,)
    assert rows[0].reach == pytest.approx(1.0)
    assert normalized(step, [0.5, 0.25]) == pytest.approx(normalized(before, [0.5, 0.25]), abs=1e-5)
    assert normalized(step, [4.0, 1.0]).abs().max() <= 2


@pytest.mark.parametrize("mode", MODES)
def test_what_is_within_reach_is_left_alone(mode: str) -> None:
    before, _ = guarded(mode, 0.01, 0.01)
    step, rows = guarded(mode, 0.01, 0.9)
    assert rows[0].widened == ()
    assert rows[0].reach == pytest.approx(90, rel=1e-3)
    assert step.state_dict().keys() == before.state_dict().keys()
    assert all(torch.equal(value, before.state_dict()[name]) for name, value in step.state_dict().items())


@pytest.mark.parametrize(("new", "widened"), [(3.5, ()), (35.0, (0,))])
def test_an_action_is_widened_later(new: float, widened: tuple[int, ...]) -> None:
    _, rows = guarded("MEAN_STD", 0.01, new, "ACTION")
    assert rows[0].widened == widened


def test_other_number_of_dimensions_is_refused() -> None:
    features = {"observation.state": PolicyFeature(type=FeatureType.STATE, shape=(2,))}
    step = NormalizerProcessorStep(features=features, norm_map={FeatureType.STATE: NormalizationMode.MEAN_STD})
    step.load_state_dict({"observation.state.mean": torch.zeros(2), "observation.state.std": torch.ones(2)})
    new = {"observation.state": {"mean": torch.zeros(3), "std": torch.ones(3)}}
    empty = PolicyProcessorPipeline(steps=[], name="post")
    with pytest.raises(UsageError, match=r"3 number\(s\) in the new dataset and 2 for the teacher"):
        guard(PolicyProcessorPipeline(steps=[step], name="pre"), empty, new)


def test_hidden_states_need_the_teachers_statistics(problem: Problem, act_cache: Path, tmp_path: Path) -> None:
    anchored = {"craft__anchor_cache_dir": act_cache, "craft__normalization": "dataset", "steps": 1}
    refused = craft(["train", *problem.flags(tmp_path / "hidden", craft__retention_mode="hidden", **anchored)])
    assert refused.code == 2, refused.text
    assert "`--craft.normalization=dataset` got `--craft.retention_mode=hidden`" in refused.text
    assert craft(["train", *problem.flags(tmp_path / "action", craft__retention_mode="action", **anchored)]).code == 0
