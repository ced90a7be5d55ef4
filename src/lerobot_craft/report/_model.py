# SPDX-License-Identifier: Apache-2.0
"""What a report is made from, whatever files it came from; reads none and draws nothing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lerobot_craft.report._text import Text


@dataclass(frozen=True)
class Estimate:
    """A measured number.

    Attributes:
        mean: The number.
        low: Lower end of its interval, if it has one.
        high: Upper end of its interval, if it has one.
        values: What it is the mean of, if that is known.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Stage:
    """What a student could do after one of its new tasks.

    Attributes:
        new_task: The task it had just learned.
        success: Success by task.
        drift: Drift by task.
        checkpoint: Where the student is, if known.
    """

    new_task: str
    success: dict[str, float]
    drift: dict[str, float]
    checkpoint: str | None = None


@dataclass(frozen=True)
class StudentRun:
    """One student of a comparison.

    Attributes:
        problem: Name of its problem.
        seed: Seed of its training.
        stages: One per new task, in their order.
    """

    problem: str
    seed: int
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Strength:
    """The one setting of a method that was chosen by a sweep.

    Attributes:
        setting: Its name.
        chosen: The value chosen.
        tried: Value, old success, new success and score of each that was tried; None where not measured.
    """

    setting: str
    chosen: Any
    tried: tuple[tuple[Any, float | None, float | None, float | None], ...]


@dataclass(frozen=True)
class Method:
    """One way to fine-tune, and how it fared.

    Attributes:
        name: Its name on the command line.
        title: Its name for people.
        command: The command that ran it, if known.
        measures: What was measured, by name (`old_success`, `new_success`, `forgetting`, …); only what was.
        strength: The setting that was swept for it, if any.
        runs: Its students, if they are known one by one.
    """

    name: str
    title: Text
    command: str | None = None
    measures: dict[str, Estimate] = field(default_factory=dict)
    strength: Strength | None = None
    runs: tuple[StudentRun, ...] = ()

    def get(self, measure: str) -> Estimate | None:
        """Return what was measured, None where it was not."""
        return self.measures.get(measure)

    def mean(self, measure: str) -> float | None:
        """Return the mean of what was measured, None where it was not."""
        found = self.measures.get(measure)
        return None if found is None else found.mean


@dataclass(frozen=True)
class Problem:
    """What was known and what was taught.

    Attributes:
        name: Its name.
        old_tasks: Tasks the teacher knows.
        new_tasks: Tasks the student is taught, in their order; more than one is a sequence.
    """

    name: str
    old_tasks: tuple[str, ...]
    new_tasks: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Several methods on the same problems; the demo is a small one.

    Attributes:
        path: Where it is from.
        methods: What was compared.
        teacher: The policy all of them started from.
        problems: On what.
        seeds: Training seeds.
        episodes: Evaluation episodes per task and student.
        command: The command that made it, if known.
        settings: Its settings.
        wall_s: How long it took, if known.
        complete: False where some of it is still to be done.
    """

    path: Path
    methods: tuple[Method, ...]
    teacher: Method | None
    problems: tuple[Problem, ...]
    seeds: tuple[int, ...]
    episodes: int | None
    command: str | None
    settings: dict[str, Any]
    wall_s: float | None
    complete: bool = True


@dataclass(frozen=True)
class NormalizationRow:
    """How one feature of the new data lies in the teacher's units; see `training.FeatureRow`."""

    feature: str
    mode: str
    dimensions: int
    reach: float
    outside: float
    widened: tuple[int, ...]
    added: bool


@dataclass(frozen=True)
class TrainingRun:
    """One training run.

    Attributes:
        path: Its folder.
        name: Short name, from the folder.
        title: Its name for people.
        rows: One per line of the log, by step.
        record: What `run.json` says; empty where there is none.
        steps: How many steps were asked for, if known.
        settings: Those that differ from their defaults: name to (value, default).
        normalization: The table of the start.
        best: The card of `checkpoints/best`, if any.
        anchor_bytes: Size of its anchor cache, if it is still there.
        checkpoint_bytes: Size of its last checkpoint's weights, if there is one.
        damaged_lines: Lines of the log that could not be read.
        student: Which of a comparison's students it trained, if it is one of them.
    """

    path: Path
    name: str
    title: Text
    rows: tuple[dict[str, Any], ...]
    record: dict[str, Any]
    steps: int | None
    settings: dict[str, tuple[Any, Any]]
    normalization: tuple[NormalizationRow, ...]
    best: dict[str, Any] | None
    anchor_bytes: int | None
    checkpoint_bytes: int | None
    damaged_lines: int
    student: str | None = None

    def series(self, column: str) -> list[tuple[float, float]]:
        """Return a column of the log over the steps that measured it."""
        return [(row["step"], row[column]) for row in self.rows if isinstance(row.get(column), int | float)]

    def last(self, column: str) -> float | None:
        """Return the last value of a column, None where it was never measured."""
        found = self.series(column)
        return found[-1][1] if found else None

    @property
    def last_step(self) -> int:
        """The last step in the log; 0 where it is empty."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def retains(self) -> bool:
        """Whether anything was retained."""
        return bool(self.series("craft/retention_loss"))


@dataclass(frozen=True)
class LayerDrift:
    """How far one layer moved.

    Attributes:
        layer: Its name.
        relative_l2: Distance in units of the teacher's norm.
        cosine: Cosine between student and teacher.
        cka: Linear CKA.
    """

    layer: str
    relative_l2: Estimate | None
    cosine: Estimate | None
    cka: float | None


@dataclass(frozen=True)
class CheckpointDrift:
    """How far one checkpoint moved from its teacher.

    Attributes:
        path: The checkpoint.
        step: Its step, if known.
        over: Whether it is over the limit.
        action: Action drift over all, in standard deviations of the action.
        by_task: The same by task.
        by_joint: The same by joint.
        token_kl: KL of the token distribution, for token policies.
        features: Drift by layer.
        language: Answer to a swapped instruction: teacher, student, and whether the student ignores it.
        weights: Drift of the student's weights under the teacher's statistics.
        statistics: Drift due to the statistics alone.
    """

    path: str
    step: int | None
    over: bool | None
    action: Estimate | None
    by_task: dict[str, Estimate]
    by_joint: dict[str, Estimate]
    token_kl: Estimate | None
    features: tuple[LayerDrift, ...]
    language: "Language | None"
    weights: Estimate | None
    statistics: Estimate | None


@dataclass(frozen=True)
class Language:
    """How much the action changes when the instruction is swapped.

    Attributes:
        teacher: The teacher's change.
        student: The student's.
        ratio: Student's over teacher's.
        ignores: Whether the student no longer answers to the instruction.
    """

    teacher: Estimate | None
    student: Estimate | None
    ratio: float | None
    ignores: bool


@dataclass(frozen=True)
class Drift:
    """What the drift command measured.

    Attributes:
        path: The file.
        teacher: The teacher.
        dataset: The dataset both looked at.
        policy_type: Their type.
        episodes: How many episodes.
        frames: How many frames.
        max_drift: The limit, if one was set.
        keep: The checkpoint it advises to keep.
        checkpoints: One per checkpoint.
    """

    path: Path
    teacher: str | None
    dataset: str | None
    policy_type: str | None
    episodes: int | None
    frames: int | None
    max_drift: float | None
    keep: str | None
    checkpoints: tuple[CheckpointDrift, ...]


@dataclass
class Material:
    """All that goes into one report.

    Attributes:
        comparisons: Comparisons and demos.
        runs: Training runs.
        drifts: Drift measurements.
    """

    comparisons: list[Comparison] = field(default_factory=list)
    runs: list[TrainingRun] = field(default_factory=list)
    drifts: list[Drift] = field(default_factory=list)

    def is_alone(self, run: TrainingRun) -> bool:
        """Return whether a run is part of no demo or comparison that is reported too."""
        return not any(run.path.is_relative_to(comparison.path) for comparison in self.comparisons)
