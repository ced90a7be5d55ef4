# SPDX-License-Identifier: Apache-2.0
"""The parts of the measure where a number is known beforehand."""

import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from tests._problem import Problem
from tests.drift.conftest import INSTRUCTION, STATE, Instructed

from lerobot_craft.caching._teacher import load_teacher
from lerobot_craft.drift import Frames, action_drift, choose_frames
from lerobot_craft.drift._actions import LEAST_SHARE, Units, action_units, distances, over_joints
from lerobot_craft.drift._features import linear_cka
from lerobot_craft.drift._language import make_swap


def frames_of(made: Instructed, count: int = 24, **options: int) -> Frames:
    dataset = LeRobotDataset("craft/instructed", root=made.data)
    return choose_frames(dataset, count, **{"seed": 0, "batch_size": 7, **options})


def test_distance_is_in_units_of_each_joint() -> None:
    units = Units(torch.tensor([1.0, 10.0]).double(), ("a", "b"))
    actions = torch.zeros(1, 2, 2).double()
    others = torch.tensor([[[1.0, 0.0], [1.0, 20.0]]]).double()
    by_joint = distances(actions, others, units)
    torch.testing.assert_close(by_joint, torch.tensor([[1.0, 2**0.5]]).double())
    torch.testing.assert_close(over_joints(by_joint), torch.tensor([[1.5**0.5]]).double())


def test_the_unit_is_the_datasets_and_floored_where_a_joint_stands_still(problem: Problem) -> None:
    dataset = LeRobotDataset("craft/small", root=problem.old)
    deviation = torch.as_tensor(dataset.meta.stats["action"]["std"]).double()
    units = action_units(dataset)
    torch.testing.assert_close(units.scale, deviation)
    assert units.joints == ("joint 0", "joint 1", "joint 2")
    dataset.meta.stats["action"]["std"] = torch.tensor([2.0, 0.0, 1.0])
    assert action_units(dataset).scale.tolist() == [2.0, LEAST_SHARE * 2.0, 1.0]
    dataset.meta.stats["action"]["std"] = torch.zeros(3)
    assert action_units(dataset).scale.tolist() == [1.0, 1.0, 1.0]


def test_frames_are_spread_and_follow_the_seed(instructed: Instructed) -> None:
    first, again, other = frames_of(instructed), frames_of(instructed), frames_of(instructed, seed=1)
    assert first.indices == again.indices != other.indices
    for chosen in (first, other):
        assert {task: chosen.tasks.count(task) for task in chosen.tasks} == {"follow": 12, "flee": 12}
        assert {episode: chosen.episodes.count(episode) for episode in chosen.episodes} == dict.fromkeys(range(6), 4)
    batches = list(first.batches())
    assert [len(batch["task"]) for batch in batches] == [7, 7, 7, 3]
    assert [index for batch in batches for index in batch["index"].tolist()] == list(first.indices)
    assert len(frames_of(instructed, 10_000)) == 72


def test_another_instruction_is_text_and_vector_and_nothing_else(instructed: Instructed) -> None:
    frames = frames_of(instructed)
    swap = make_swap(frames, [STATE, INSTRUCTION])
    assert swap is not None
    assert all(text != task for text, task in zip(swap.texts, frames.tasks, strict=True))
    assert list(swap.columns) == [INSTRUCTION]
    for place, batch in zip(frames.places(), frames.batches(), strict=True):
        swapped = swap.apply(batch, place)
        assert torch.equal(swapped[INSTRUCTION], batch[INSTRUCTION][:, [1, 0, 2]])
        assert torch.equal(swapped[STATE], batch[STATE])
        # The same where a policy reads two steps.
        history = swap.apply({**batch, INSTRUCTION: batch[INSTRUCTION][:, None].repeat(1, 2, 1)}, place)
        assert torch.equal(history[INSTRUCTION][:, 1], swapped[INSTRUCTION])


def test_cka_knows_a_turned_space_from_a_changed_one() -> None:
    features = torch.randn(40, 8)
    turn, _ = torch.linalg.qr(torch.randn(8, 8))
    assert linear_cka(features, features) == 1.0
    assert abs((linear_cka(features, 3 * features @ turn + 1) or 0) - 1) < 1e-6
    assert (linear_cka(features, torch.randn(40, 8)) or 1) < 0.5
    assert linear_cka(features, torch.ones(40, 8)) is None


def test_action_drift_by_task(instructed: Instructed) -> None:
    teacher, blind = load_teacher(str(instructed.teacher)), load_teacher(str(instructed.blind))
    dataset = LeRobotDataset("craft/instructed", root=instructed.data)
    same, lost = action_drift(teacher, [teacher, blind], dataset, num_frames=40)
    assert same.all.mean == 0
    assert set(lost.by_task) == {"follow", "flee"}
    assert min(task.low for task in lost.by_task.values()) > 0.3
    halves = [task.mean for task in lost.by_task.values()]
    assert abs(lost.all.mean - sum(halves) / 2) < 1e-9, "as many frames of one task as of the other"
