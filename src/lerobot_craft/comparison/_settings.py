# SPDX-License-Identifier: Apache-2.0
"""What `lerobot-craft compare` compares: problems, methods, sizes; their validation; no torch and no LeRobot."""

import dataclasses
import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lerobot_craft.comparison._methods import DEFAULT_METHODS, METHODS, Method
from lerobot_craft.errors import SettingsError

# Seeds of runs stay below this; those above belong to tuning and to held-out states.
MOST_SEEDS = 4000


@dataclass(frozen=True)
class Problem:
    """A policy that knows some tasks, and the tasks it is taught after one another.

    Attributes:
        name: Its folder and its name in tables.
        old_tasks: What the teacher knows.
        new_tasks: What it is taught, in this order; each one's student is the next one's teacher.
    """

    name: str
    old_tasks: tuple[str, ...]
    new_tasks: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, in the order they are met."""
        return (*self.old_tasks, *self.new_tasks)

    def known(self, stage: int) -> tuple[str, ...]:
        """Return the tasks met before a stage begins; stage 0 is the first new task."""
        return (*self.old_tasks, *self.new_tasks[:stage])


# Meta-World tasks that the small teacher learns; the new ones are none it can do untrained.
SPLITS = (
    Problem("drawer", ("hammer", "faucet-close", "push", "button-press-topdown"), ("drawer-open",)),
    Problem("window", ("door-open", "plate-slide", "handle-press", "door-unlock"), ("window-open",)),
    Problem("button", ("drawer-close", "faucet-open", "push-wall", "door-lock"), ("button-press",)),
)
# Of Continual World's ten tasks (Wolczyk et al. 2021), in its order.
CW10 = (
    "hammer",
    "push-wall",
    "faucet-close",
    "push-back",
    "stick-pull",
    "handle-press-side",
    "push",
    "shelf-place",
    "window-close",
    "peg-unplug-side",
)
# What a policy knows before a sequence begins, none of it of Continual World: one that knows a single task has
# statistics in which hardly another task can be learnt (docs/log.md).
BASE = ("door-open", "drawer-close", "plate-slide", "button-press-topdown")
GROUPS: dict[str, tuple[Problem, ...]] = {
    "splits": SPLITS,
    "sequence": (Problem("sequence", BASE, ("hammer", "faucet-close", "handle-press-side", "push", "window-close")),),
    "cw10": (Problem("cw10", BASE, CW10),),
}
# Two, since one alone leaves many strengths equally good.
TUNING = (
    Problem("tuning", ("coffee-button", "door-close", "plate-slide-back", "button-press-wall"), ("faucet-open",)),
    Problem("tuning_plate", ("window-close", "handle-press-side", "reach-wall", "door-unlock"), ("plate-slide",)),
)
TUNING_SEEDS = (4000,)
# A sequence costs as many fine-tunings as it has tasks: unless asked otherwise it is run for these alone.
SEQUENCE_METHODS = ("plain", "craft", "action", "replay")

# Their change needs no other stage again.
FREE_TO_CHANGE = ("methods", "problems", "seeds", "tune", "workers", "output_dir", "old_tasks", "new_tasks", "study")


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """What is compared, and at which size.

    Attributes:
        methods: Names of the methods.
        problems: Groups of problems: `splits`, `sequence`, `cw10`; ignored where tasks are given.
        old_tasks: Meta-World tasks the teacher knows, for a problem of one's own.
        new_tasks: The tasks it is taught after one another.
        seeds: Of demonstrations, training and evaluation.
        episodes: Evaluation episodes per task.
        demos: Demonstrations per task.
        teacher_steps: Training steps of a teacher.
        steps: Training steps of a fine-tuning.
        num_anchors: Anchors per fine-tuning.
        tune: Whether each method's strength is chosen first; otherwise it is the one in its settings.
        workers: Processes that work at a time.
        study: Methods of a study file, by name, that replace those of the package.
        output_dir: Where everything goes.
    """

    methods: tuple[str, ...] = DEFAULT_METHODS
    problems: tuple[str, ...] = ("splits", "sequence")
    old_tasks: tuple[str, ...] = ()
    new_tasks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    episodes: int = 20
    demos: int = 30
    teacher_steps: int = 1500
    steps: int = 300
    num_anchors: int = 200
    tune: bool = True
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    study: dict[str, Method] = field(default_factory=dict)
    output_dir: Path = Path("outputs/compare")

    def __post_init__(self) -> None:
        problems = [
            f"`--{name}={value}`: expected 1 or more."
            for name in ("episodes", "demos", "teacher_steps", "num_anchors", "workers")
            if (value := vars(self)[name]) < 1
        ]
        if self.steps < 2:
            problems.append(f"`--steps={self.steps}`: expected 2 or more; half-way is looked at too.")
        problems += [
            f"`--seeds` names {seed}: expected 0 to {MOST_SEEDS - 1}."
            for seed in self.seeds
            if seed not in range(MOST_SEEDS)
        ]
        problems += [f"`--{name}` is empty." for name in ("methods", "problems", "seeds") if not vars(self)[name]]
        problems += _unknown("methods", self.methods, tuple(self.known_methods))
        problems += _unknown("problems", self.problems, tuple(GROUPS))
        problems += self._task_problems()
        if problems:
            raise SettingsError(problems)

    def _task_problems(self) -> list[str]:
        if bool(self.old_tasks) != bool(self.new_tasks):
            given, missing = ("old", "new") if self.old_tasks else ("new", "old")
            return [f"`--{given}_tasks` was given without `--{missing}_tasks`: a problem has both."]
        tasks = (*self.old_tasks, *self.new_tasks)
        return [
            f"Task {task} is named twice: give each task once."
            for task in sorted({t for t in tasks if tasks.count(t) > 1})
        ]

    @property
    def known_methods(self) -> dict[str, Method]:
        """The study's methods, or the package's where there is no study."""
        return self.study or METHODS

    def groups(self) -> dict[str, tuple[Problem, ...]]:
        """Return the problems by group; each group has a table of its own."""
        if self.old_tasks:
            return {"custom": (Problem("custom", self.old_tasks, self.new_tasks),)}
        return {name: GROUPS[name] for name in self.problems}

    def methods_of(self, group: str) -> tuple[str, ...]:
        """Return the methods that a group of problems is solved with."""
        everything = self.methods == DEFAULT_METHODS and not self.study
        if group in ("sequence", "cw10") and everything:
            return SEQUENCE_METHODS
        return self.methods

    def fixed(self) -> dict[str, Any]:
        """Return the settings that the work in a folder was done with, as plain JSON values."""
        return {f.name: vars(self)[f.name] for f in dataclasses.fields(self) if f.name not in FREE_TO_CHANGE}


def _unknown(flag: str, names: tuple[str, ...], known: tuple[str, ...]) -> list[str]:
    problems = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}."
            problems.append(f"`--{flag}` names `{name}`: {hint}")
    return problems
