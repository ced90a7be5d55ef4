# SPDX-License-Identifier: Apache-2.0
"""The settings of `lerobot-craft eval`, their defaults and their validation; imports neither torch nor LeRobot."""

from dataclasses import dataclass
from pathlib import Path

from lerobot_craft.errors import SettingsError
from lerobot_craft.evaluation._tasks import LONGEST_EPISODE


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Which checkpoints to try on which tasks.

    Attributes:
        checkpoints: Folders of policies that read Meta-World states, with their processors.
        tasks: Meta-World tasks.
        episodes: Episodes per task and checkpoint.
        max_steps: Steps after which an episode has failed.
        seed: Of the starts; the same for every checkpoint.
        output: A JSON file for the outcomes, if wanted.
    """

    checkpoints: tuple[Path, ...]
    tasks: tuple[str, ...]
    episodes: int = 20
    max_steps: int = 200
    seed: int = 0
    output: Path | None = None

    def __post_init__(self) -> None:
        problems = []
        if not self.checkpoints:
            problems.append("`--policy.path` names no checkpoint: expected one or more folders.")
        if not self.tasks:
            problems.append("`--tasks` names no task: expected one or more, as in `--tasks=push,hammer`.")
        if self.episodes < 1:
            problems.append(f"`--episodes={self.episodes}`: expected 1 or more.")
        if not 1 <= self.max_steps <= LONGEST_EPISODE:
            problems.append(f"`--max_steps={self.max_steps}`: expected 1 to {LONGEST_EPISODE}, where Meta-World stops.")
        if not 0 <= self.seed < 10_000:
            problems.append(f"`--seed={self.seed}`: expected 0 to 9999.")
        if problems:
            raise SettingsError(problems)
