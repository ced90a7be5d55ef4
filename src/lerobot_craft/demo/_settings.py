# SPDX-License-Identifier: Apache-2.0
"""The settings of `lerobot-craft demo`, their defaults and their validation; imports neither torch nor LeRobot."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lerobot_craft.errors import SettingsError

# Their evaluation needs no training again, and where they are is no part of what they are.
FREE_TO_CHANGE = ("episodes", "output_dir")


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What the demo shows, and how long it takes.

    Attributes:
        old_tasks: Meta-World tasks the teacher knows.
        new_task: The task it is taught.
        demos: Demonstrations per task.
        episodes: Evaluation episodes per task and method.
        teacher_steps: Training steps of the teacher.
        steps: Training steps of each fine-tuning.
        seed: Of demonstrations, training and evaluation.
        output_dir: Where everything goes.
    """

    old_tasks: tuple[str, ...] = ("hammer", "faucet-close", "push", "button-press-topdown")
    new_task: str = "drawer-open"
    demos: int = 30
    episodes: int = 20
    teacher_steps: int = 1500
    steps: int = 300
    seed: int = 0
    output_dir: Path = Path("outputs/demo")

    def __post_init__(self) -> None:
        problems = [
            f"`--{name}={value}`: expected 1 or more."
            for name in ("demos", "episodes", "teacher_steps", "steps")
            if (value := vars(self)[name]) < 1
        ]
        if not 0 <= self.seed < 10_000:
            problems.append(f"`--seed={self.seed}`: expected 0 to 9999.")
        if not self.old_tasks:
            problems.append("`--old_tasks` names no task: expected one or more, as in `--old_tasks=push,hammer`.")
        if twice := sorted({name for name in self.old_tasks if self.old_tasks.count(name) > 1}):
            problems.append(f"`--old_tasks` names {', '.join(twice)} twice: give each task once.")
        if self.new_task in self.old_tasks:
            problems.append(f"`--new_task={self.new_task}` is one of the old tasks: choose another.")
        if problems:
            raise SettingsError(problems)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The old tasks and then the new one."""
        return (*self.old_tasks, self.new_task)

    def fixed(self) -> dict[str, Any]:
        """Return the settings that a folder's stages were made with, as plain JSON values."""
        plain = {**dataclasses.asdict(self), "old_tasks": list(self.old_tasks)}
        return {name: value for name, value in plain.items() if name not in FREE_TO_CHANGE}
