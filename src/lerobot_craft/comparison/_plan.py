# SPDX-License-Identifier: Apache-2.0
"""From problems, methods and seeds to jobs in their order; does none of them."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lerobot_craft.comparison._jobs import Job
from lerobot_craft.comparison._methods import OLD, Method
from lerobot_craft.comparison._places import Place
from lerobot_craft.comparison._settings import CompareSettings, Problem
from lerobot_craft.comparison._work import build_anchors, checkpoint_of, fine_tune, make_data, train_teacher


@dataclass(frozen=True)
class Solved:
    """The jobs of one method on one problem under one seed.

    Attributes:
        method: The method's name in the table.
        problem: The problem.
        seed: The seed.
        place: Where the problem is.
        stages: Folders of the fine-tunings, in their order.
        anchors: Folders of their anchor caches; None where a method needs none.
    """

    method: str
    problem: Problem
    seed: int
    place: Place
    stages: tuple[Path, ...]
    anchors: tuple[Path | None, ...]


@dataclass
class Plan:
    """Jobs without repetition, and which of them answer what.

    Attributes:
        settings: Sizes of the jobs.
        jobs: By folder, each after those it waits for.
        solved: What the table is made of.
    """

    settings: CompareSettings
    jobs: dict[Path, Job] = field(default_factory=dict)
    solved: list[Solved] = field(default_factory=list)

    def add(self, problem: Problem, methods: Mapping[str, Method], seeds: Iterable[int]) -> None:
        """Plan some methods on a problem."""
        for seed in seeds:
            place = Place(self.settings.output_dir / problem.name / f"seed_{seed}")
            self._add_teacher(place, problem, seed)
            for name, method in methods.items():
                self._add_method(place, problem, seed, name, method)

    def _add_teacher(self, place: Place, problem: Problem, seed: int) -> None:
        settings, where = self.settings, f"{problem.name}, seed {seed}"
        tasks = {"old_tasks": list(problem.old_tasks), "new_tasks": list(problem.new_tasks)}
        self._add(
            Job(
                folder=place.data,
                does=f"{where}: demonstrations",
                work=make_data,
                arguments={"place": place, "problem": problem, "seed": seed, "demos": settings.demos},
                facts=tasks,
            )
        )
        self._add(
            Job(
                folder=place.teacher,
                does=f"{where}: teacher",
                work=train_teacher,
                arguments={
                    "place": place,
                    "problem": problem,
                    "seed": seed,
                    "steps": settings.teacher_steps,
                    "episodes": settings.episodes,
                },
                facts=tasks,
                after=(place.data,),
            )
        )

    def _add_method(self, place: Place, problem: Problem, seed: int, name: str, method: Method) -> None:
        settings, facts = self.settings, method.facts()
        # Two names of one method are one run.
        label = f"{re.sub(r'[^\w.]+', '-', name)}-{_short(facts)}"
        same = [path.parent.name for path in self.jobs if path.parent.parent == place.root / "runs"]
        label = next((other for other in same if other.endswith(_short(facts))), label)
        before, teacher = place.teacher, place.teacher / "checkpoints" / "last" / "pretrained_model"
        stages: list[Path] = []
        caches: list[Path | None] = []
        for stage in range(len(problem.new_tasks)):
            folder = place.run(label, stage)
            anchors = self._add_anchors(place, problem, stage, seed, method, label, before, teacher)
            self._add(
                Job(
                    folder=folder,
                    does=f"{problem.name}, seed {seed}: {name}, {problem.new_tasks[stage]}",
                    work=fine_tune,
                    arguments={
                        "place": place,
                        "folder": folder,
                        "problem": problem,
                        "stage": stage,
                        "seed": seed,
                        "teacher": teacher,
                        "anchors": anchors,
                        "flags": dict(method.flags),
                        "merges": method.merges,
                        "steps": settings.steps,
                        "episodes": settings.episodes,
                    },
                    facts=facts,
                    after=tuple(path for path in (before, anchors) if path is not None),
                )
            )
            stages.append(folder)
            caches.append(anchors)
            before, teacher = folder, checkpoint_of(folder, method)
        self.solved.append(Solved(name, problem, seed, place, tuple(stages), tuple(caches)))

    def _add_anchors(
        self,
        place: Place,
        problem: Problem,
        stage: int,
        seed: int,
        method: Method,
        label: str,
        before: Path,
        teacher: Path,
    ) -> Path | None:
        if method.cache is None:
            return None
        facts = {name: str(value) for name, value in sorted(method.cache.items())}
        of = f"stage_{stage}-{method.source}-{_short(facts)}"
        # The first teacher is everybody's; a later one is the method's own student.
        folder = place.anchors(of if stage == 0 else f"{of}-{label}")
        data = place.known(stage) if method.source == OLD else place.prompted(stage)
        self._add(
            Job(
                folder=folder,
                does=f"{problem.name}, seed {seed}: anchors",
                work=build_anchors,
                arguments={
                    "folder": folder,
                    "data": data,
                    "teacher": teacher,
                    "seed": seed,
                    "count": self.settings.num_anchors,
                    "flags": dict(method.cache),
                },
                facts=facts,
                after=(before,),
            )
        )
        return folder

    def _add(self, job: Job) -> None:
        self.jobs.setdefault(job.folder, job)


def _short(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
