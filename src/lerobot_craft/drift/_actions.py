# SPDX-License-Identifier: Apache-2.0
"""How far a policy's actions are from its teacher's, in units of the dataset's own spread; loads nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch import Tensor

from lerobot_craft.anchors._seeds import derive_seed
from lerobot_craft.caching._teacher import Teacher
from lerobot_craft.drift._frames import Batch, Frames, choose_frames
from lerobot_craft.drift._intervals import Interval, bootstrap
from lerobot_craft.policies import teacher_actions

# A joint that hardly moves in the data would turn a harmless motion into a huge one: its unit is at least this share
# of the largest joint's.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Units:
    """What drift is measured in.

    Attributes:
        scale: Standard deviation of each action dimension in the dataset, floored, [dim].
        joints: Names of the dimensions.
    """

    scale: Tensor
    joints: tuple[str, ...]


@dataclass(frozen=True)
class DriftResult:
    """How far one policy's actions are from the teacher's, in standard deviations of the dataset's actions.

    Attributes:
        all: Over all frames.
        by_task: Over the frames of each instruction.
        by_joint: Of each action dimension, over all frames.
    """

    all: Interval
    by_task: dict[str, Interval]
    by_joint: dict[str, Interval]


def action_drift(
    teacher: Teacher,
    students: Sequence[Teacher],
    frames: LeRobotDataset | Frames,
    *,
    num_frames: int = 400,
    seed: int = 0,
    batch_size: int = 64,
) -> list[DriftResult]:
    """Compare the students' action chunks with the teacher's on the same frames and the same noise.

    Each policy runs with its own processors, as on a robot, and what comes out of the postprocessor is compared. A
    frame's drift is the root of the mean square, over the steps of the chunk and the joints, of the difference divided
    by `action_units`; a result is the mean over frames.

    Args:
        teacher: Whom to compare with, from `caching._teacher.load_teacher`.
        students: Policies of the same type and size.
        frames: A dataset, opened with the time steps that the policy reads (`caching._source.open_dataset`), from
            which `num_frames` are chosen; or frames chosen before by `choose_frames`.
        num_frames: How many frames to choose, evenly over tasks and episodes.
        seed: Of that choice, of the policies' noise and of the intervals.
        batch_size: How many frames go through a policy at once.

    Returns:
        One result per student, in their order.
    """
    chosen = frames if isinstance(frames, Frames) else choose_frames(frames, num_frames, seed, batch_size)
    units = action_units(chosen.dataset)
    asked = answers(teacher, chosen, seed)
    return [summarise(asked, answers(student, chosen, seed), chosen, units, seed) for student in students]


def action_units(dataset: LeRobotDataset) -> Units:
    """Return the standard deviation of each action dimension over the dataset, floored for those that hardly move."""
    feature = dataset.meta.features["action"]
    scale = torch.as_tensor(dataset.meta.stats["action"]["std"]).double().flatten()
    largest = float(scale.max())
    floored = scale.clamp(min=LEAST_SHARE * largest) if largest > 0 else torch.ones_like(scale)
    return Units(floored, _joints(feature["names"], len(scale)))


def noise_seed(seed: int, batch: int) -> int:
    """Return the seed of the noise that every policy gets on batch number `batch`."""
    return derive_seed("drift noise", seed, batch) % 2**31


def answer(policy: Teacher, frames: Batch, seed: int) -> Tensor:
    """Return a policy's action chunks in the robot's units, [frames, chunk, dim]."""
    # One after the other: a postprocessor of relative actions adds what its preprocessor saw last.
    batch = policy.preprocess(dict(frames))
    return policy.postprocess(teacher_actions(policy.policy, batch, seed)).cpu().double()


def answers(policy: Teacher, frames: Frames, seed: int) -> Tensor:
    """Return a policy's action chunks on all frames."""
    return torch.cat([answer(policy, batch, noise_seed(seed, number)) for number, batch in enumerate(frames.batches())])


def distances(actions: Tensor, others: Tensor, units: Units) -> Tensor:
    """Return the distance of each frame's chunks by joint, [frames, dim]."""
    return ((actions - others) / units.scale).square().mean(dim=1).sqrt()


def over_joints(by_joint: Tensor) -> Tensor:
    """Return the distance of each frame's chunks over all joints, [frames, 1]."""
    return by_joint.square().mean(dim=1, keepdim=True).sqrt()


def by_task(values: Tensor, frames: Frames, seed: int) -> dict[str, Interval]:
    """Return the mean of a quantity [frames, 1] for each instruction, in the order of their names."""
    found = {}
    for task in sorted(set(frames.tasks)):
        rows = [row for row, name in enumerate(frames.tasks) if name == task]
        found[task] = bootstrap(values[rows], [frames.episodes[row] for row in rows], seed)[0]
    return found


def summarise(teachers: Tensor, students: Tensor, frames: Frames, units: Units, seed: int) -> DriftResult:
    """Return the drift between two policies' action chunks on the same frames."""
    joints = distances(teachers, students, units)
    overall = over_joints(joints)
    return DriftResult(
        bootstrap(overall, frames.episodes, seed)[0],
        by_task(overall, frames, seed),
        dict(zip(units.joints, bootstrap(joints, frames.episodes, seed), strict=True)),
    )


def _joints(names: Any, count: int) -> tuple[str, ...]:  # noqa: ANN401 - a list, a dict of lists or None, as datasets have it
    flat = [name for part in names.values() for name in part] if isinstance(names, Mapping) else names or []
    return tuple(map(str, flat)) if len(flat) == count else tuple(f"joint {index}" for index in range(count))
