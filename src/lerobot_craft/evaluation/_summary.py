# SPDX-License-Identifier: Apache-2.0
"""Success of checkpoints on tasks as lines of text and as JSON, split into old and new; runs nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation._forgetting import ForgettingMetrics, forgetting_metrics
from lerobot_craft.evaluation._success import TaskSuccess, wilson_interval

METRICS = {
    "forward_transfer": "FWT",
    "negative_backward_transfer": "NBT",
    "area_under_curve": "AUC",
    "average_forgetting": "forgetting",
    "backward_transfer": "BWT",
}


@dataclass(frozen=True)
class Split:
    """Which tasks are old and which are new.

    Attributes:
        old: Tasks that the teacher knew.
        new: For each name in the command, the tasks it stands for: itself, or a group's.
        sequence: Whether the names in `new` were taught one after the other.
    """

    old: tuple[str, ...] = ()
    new: tuple[tuple[str, ...], ...] = ()
    sequence: bool = False

    @property
    def all_new(self) -> tuple[str, ...]:
        """The new tasks of all stages."""
        return tuple(task for tasks in self.new for task in tasks)


def make_split(old: Sequence[str], new: Sequence[str], tasks: Sequence[str], *, sequence: bool) -> Split:
    """Return the split over the tasks of an environment.

    Args:
        old: Names of old tasks or groups.
        new: Names of new tasks or groups.
        tasks: What the environment calls its tasks: `NAME`, or `GROUP/NUMBER`.
        sequence: Whether the new ones were taught one after the other.

    Raises:
        UsageError: If a name is none of the environment's.
    """
    found = {
        name: tuple(task for task in tasks if task == name or task.startswith(f"{name}/")) for name in [*old, *new]
    }
    if missing := [name for name, matches in found.items() if not matches]:
        raise UsageError(
            f"`--old_tasks` and `--new_tasks` name `{'`, `'.join(missing)}`, which `--env.task` does not run: expected "
            f"some of {', '.join(tasks)}."
        )
    return Split(tuple(task for name in old for task in found[name]), tuple(found[name] for name in new), sequence)


def success_lines(name: str, successes: Sequence[TaskSuccess], split: Split | None = None) -> list[str]:
    """Return a checkpoint's block of the table."""
    split = split or Split()
    groups = {"old tasks": split.old, "new tasks": split.all_new, "all": tuple(s.task for s in successes)}
    rows = [(success.task, success.outcomes) for success in successes]
    for group, tasks in groups.items():
        if outcomes := tuple(end for success in successes if success.task in tasks for end in success.outcomes):
            rows.append((group, outcomes))
    width = max(len(row) for row, _ in rows)
    lines = [name]
    for row, outcomes in rows:
        low, high = wilson_interval(sum(outcomes), len(outcomes))
        lines.append(f"  {row:<{width}}  {sum(outcomes) / len(outcomes):.2f}  {low:.2f}-{high:.2f}")
    return lines


def table(found: Mapping[str, Sequence[TaskSuccess]], split: Split) -> str:
    """Return the table of all checkpoints, the first of which is the teacher, with what was forgotten."""
    metrics = sequences(found, split)
    (teacher, before), *_ = found.items()
    lines = []
    for name, successes in found.items():
        lines += success_lines(name, successes, split)
        if name != teacher:
            lines += paired_lines(before, successes, split.old)
        if name in metrics:
            lines.append(metrics_line(metrics[name]))
    return "\n".join(lines) + "\n"


def success_results(successes: Iterable[TaskSuccess]) -> dict[str, Any]:
    """Return a checkpoint's part of the JSON file."""
    return {
        success.task: {
            "success": round(success.rate, 4),
            "interval": [round(bound, 4) for bound in wilson_interval(sum(success.outcomes), len(success.outcomes))],
            "outcomes": list(success.outcomes),
        }
        for success in successes
    }


def sequences(found: Mapping[str, Sequence[TaskSuccess]], split: Split) -> dict[str, ForgettingMetrics]:
    """Return the metrics of every sequence among the checkpoints, by the name of its last one.

    The first checkpoint is the teacher. Where the checkpoints are stages there is one sequence, else one of two stages
    for each student.
    """
    if not split.old and not split.new:
        return {}
    rates = {name: {success.task: success.rate for success in successes} for name, successes in found.items()}
    teacher, *students = rates
    learnt_at = dict.fromkeys(split.old, 0)
    if split.sequence:
        learnt_at |= {task: stage for stage, tasks in enumerate(split.new, 1) for task in tasks}
        return {students[-1]: forgetting_metrics(list(rates.values()), learnt_at)} if students else {}
    learnt_at |= dict.fromkeys(split.all_new, 1)
    return {student: forgetting_metrics([rates[teacher], rates[student]], learnt_at) for student in students}


def paired_lines(teacher: Sequence[TaskSuccess], student: Sequence[TaskSuccess], tasks: Sequence[str]) -> list[str]:
    """Return what changed from the teacher's outcome to the student's at the same starts."""
    before = {success.task: success.outcomes for success in teacher}
    lost = gained = total = 0
    for success in student:
        if success.task in tasks:
            pairs = list(zip(before[success.task], success.outcomes, strict=True))
            lost += sum(old and not new for old, new in pairs)
            gained += sum(new and not old for old, new in pairs)
            total += len(pairs)
    return [f"  old tasks from the same {total} starts: {lost} lost, {gained} gained"] if total else []


def metrics_line(metrics: ForgettingMetrics) -> str:
    """Return the metrics on one line; what does not exist is left out."""
    values = asdict(metrics)
    return "  " + "  ".join(
        f"{short} {values[name]:.2f}" for name, short in METRICS.items() if values[name] is not None
    )
