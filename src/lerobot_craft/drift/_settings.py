# SPDX-License-Identifier: Apache-2.0
"""The settings of `lerobot-craft drift`, their defaults and their validation; imports neither torch nor LeRobot."""

from dataclasses import dataclass
from pathlib import Path

from lerobot_craft.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class DriftSettings:
    """Which checkpoints to compare with which teacher, on which frames.

    Attributes:
        teacher_path: The policy before fine-tuning: a folder or a Hub repository.
        policy_paths: Checkpoints, or run folders, of which every checkpoint is compared.
        repo_id: Dataset of what the teacher knew.
        root: Its folder, where it is not in LeRobot's cache.
        episodes: Which of its episodes; None is all.
        revision: Its revision.
        max_drift: Most action drift that is acceptable; None accepts any.
        num_frames: How many frames to compare on.
        batch_size: Frames per forward.
        seed: Of the frames, the policies' noise and the intervals.
        device: Where the policies run; None is the teacher's own choice where this machine has it.
        output: A JSON file for all numbers, if wanted.
    """

    teacher_path: str
    policy_paths: tuple[str, ...]
    repo_id: str
    root: Path | None = None
    episodes: tuple[int, ...] | None = None
    revision: str | None = None
    max_drift: float | None = None
    num_frames: int = 200
    batch_size: int = 16
    seed: int = 0
    device: str | None = None
    output: Path | None = None

    def __post_init__(self) -> None:
        problems = []
        if not self.policy_paths:
            problems.append("`--policy.path` names no checkpoint: expected one or more folders, or a run's folder.")
        if self.max_drift is not None and not self.max_drift >= 0:
            problems.append(f"`--max_drift={self.max_drift}`: expected 0 or more, in standard deviations.")
        if self.num_frames < 1:
            problems.append(f"`--num_frames={self.num_frames}`: expected 1 or more.")
        if self.batch_size < 1:
            problems.append(f"`--batch_size={self.batch_size}`: expected 1 or more.")
        if self.output is not None and self.output.is_dir():
            problems.append(f"`--output={self.output}` is a folder: expected the name of a JSON file.")
        if problems:
            raise SettingsError(problems)
