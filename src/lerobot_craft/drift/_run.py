# SPDX-License-Identifier: Apache-2.0
"""One run of `lerobot-craft drift`: loads, compares one checkpoint after the other; writes nothing."""

import contextlib
import io

from tqdm import tqdm

from lerobot_craft.caching._source import open_dataset
from lerobot_craft.caching._teacher import Teacher, load_teacher
from lerobot_craft.drift._checkpoints import (
    Checkpoint,
    check_comparable,
    check_dataset,
    find_checkpoints,
    one_checkpoint,
)
from lerobot_craft.drift._frames import choose_frames
from lerobot_craft.drift._measure import Comparison
from lerobot_craft.drift._record import Measured
from lerobot_craft.drift._settings import DriftSettings

TEACHER_FLAG = "--teacher.path"


def measure(settings: DriftSettings) -> Measured:
    """Compare the checkpoints with the teacher.

    Raises:
        CraftError: If a checkpoint or the dataset is not there, or they do not fit.
    """
    checkpoints = find_checkpoints(settings.policy_paths, "--policy.path")
    teacher = load_quietly(one_checkpoint(settings.teacher_path, TEACHER_FLAG).path, settings.device, TEACHER_FLAG)
    dataset = open_dataset(settings, teacher.policy.config)
    check_dataset(dataset, teacher.policy.config, settings.repo_id)
    frames = choose_frames(dataset, settings.num_frames, settings.seed, settings.batch_size)
    device = teacher.policy.config.device
    with tqdm(total=len(frames) * (1 + len(checkpoints)), desc="drift", unit="frame", leave=False) as bar:
        comparison = Comparison(teacher, frames, settings.seed, bar.update)
        drifts = tuple(comparison.of(_load(checkpoint, teacher, device)) for checkpoint in checkpoints)
    return Measured(
        teacher=settings.teacher_path,
        policy_type=teacher.policy.config.type,
        dataset=settings.repo_id,
        episodes=len(set(frames.episodes)),
        tasks=len(set(frames.tasks)),
        frames=len(frames),
        max_drift=settings.max_drift,
        checkpoints=tuple(checkpoints),
        drifts=drifts,
    )


def load_quietly(path: str, device: str | None, flag: str) -> Teacher:
    """Load a checkpoint without LeRobot's line about it in the middle of our output."""
    with contextlib.redirect_stdout(io.StringIO()):
        return load_teacher(path, device, flag)


def _load(checkpoint: Checkpoint, teacher: Teacher, device: str) -> Teacher:
    student = load_quietly(checkpoint.path, device, "--policy.path")
    check_comparable(teacher, student, checkpoint.path)
    return student
