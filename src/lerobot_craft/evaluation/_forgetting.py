# SPDX-License-Identifier: Apache-2.0
"""Forgetting and transfer over a sequence of stages, from a matrix of success rates; runs nothing, knows no policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ForgettingMetrics:
    """What a sequence of stages taught and cost; `None` where no task allows the number.

    c[s, k] is the success on task k after stage s of S + 1 stages, 0 being the teacher, and task k is learnt at stage
    s_k. Tasks of the same stage (all that the teacher knows, say) count one each.

    Attributes:
        forward_transfer: FWT of LIBERO (Liu et al. 2023): how well and how fast the tasks of stages 1 to S were learnt;
            mean over them of FWT_k = mean_e c[s_k, k, e] over the checkpoints e within stage s_k. Where a stage has its
            last checkpoint alone, this is the success at its end, c[s_k, k]. Higher is better.
        negative_backward_transfer: NBT of LIBERO: mean over the tasks with s_k < S of
            NBT_k = mean over s = s_k + 1 … S of (c[s_k, k] − c[s, k]). Lower is better; below 0 a task got better.
        area_under_curve: AUC of LIBERO: mean over all learnt tasks of
            AUC_k = (FWT_k + sum over s = s_k + 1 … S of c[s, k]) / (S − s_k + 1). Higher is better. For the teacher's
            tasks, of whose training nothing is known, FWT_k is c[0, k].
        average_forgetting: Of Chaudhry et al. (2018): mean over the tasks with s_k < S of
            max over s < S of c[s, k], less c[S, k]: what was lost from the best there ever was.
        backward_transfer: BWT of Lopez-Paz & Ranzato (2017): mean over the tasks with s_k < S of c[S, k] − c[s_k, k]:
            the end against the moment of learning. Below 0 is forgetting.
    """

    forward_transfer: float | None
    negative_backward_transfer: float | None
    area_under_curve: float | None
    average_forgetting: float | None
    backward_transfer: float | None


def forgetting_metrics(
    success: Sequence[Mapping[str, float]],
    learnt_at: Mapping[str, int],
    during: Mapping[str, Sequence[float]] | None = None,
) -> ForgettingMetrics:
    """Return the metrics of a sequence.

    LIBERO writes its sums over all K tasks and divides by K although the last task has nothing after it; here a mean is
    over the tasks for which its term exists, so that a sequence of two stages reads like the drop it is.

    >>> found = forgetting_metrics([{"A": 1.0, "B": 0.0}, {"A": 0.75, "B": 1.0}], {"A": 0, "B": 1})
    >>> found.forward_transfer, found.negative_backward_transfer, found.average_forgetting, found.backward_transfer
    (1.0, 0.25, 0.25, -0.25)

    Args:
        success: One mapping from task to success rate per stage, the teacher's first. A task counts from the stage at
            which it was learnt; before that it may be missing.
        learnt_at: Stage at which each task was learnt. Tasks that are not named here do not count.
        during: For a task, its success at the checkpoints within the stage that teaches it, in their order (LIBERO's
            c[s_k, k, e]), the last of which is the stage's end. Where it is not given, the stage's end alone stands.

    Raises:
        ValueError: If a stage does not exist, or a success rate is missing or outside 0 to 1.
    """
    within = {task: list((during or {}).get(task, ())) for task in learnt_at}
    _check(success, learnt_at, within)
    last = len(success) - 1
    at_end = {task: success[stage][task] for task, stage in learnt_at.items()}
    speed = {task: _mean(within[task]) if within[task] else at_end[task] for task in learnt_at}
    after = {task: [row[task] for row in success[stage + 1 :]] for task, stage in learnt_at.items()}
    followed = [task for task in learnt_at if after[task]]
    best = {task: max(row[task] for row in success[:last] if task in row) for task in followed}
    return ForgettingMetrics(
        forward_transfer=_mean([speed[task] for task, stage in learnt_at.items() if stage > 0]),
        negative_backward_transfer=_mean([_mean([at_end[task] - rate for rate in after[task]]) for task in followed]),
        area_under_curve=_mean([_mean([speed[task], *after[task]]) for task in learnt_at]),
        average_forgetting=_mean([best[task] - after[task][-1] for task in followed]),
        backward_transfer=_mean([after[task][-1] - at_end[task] for task in followed]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _check(
    success: Sequence[Mapping[str, float]], learnt_at: Mapping[str, int], within: Mapping[str, Sequence[float]]
) -> None:
    problems = []
    for task, stage in learnt_at.items():
        if not 0 <= stage < len(success):
            problems.append(f"`learnt_at` says `{task}` was learnt at stage {stage}: expected 0 to {len(success) - 1}.")
            continue
        for number, row in enumerate(success[stage:], stage):
            if task not in row:
                problems.append(f"`success[{number}]` lacks `{task}`, which was learnt at stage {stage}.")
            elif not 0 <= row[task] <= 1:
                problems.append(f"`success[{number}]['{task}']` is {row[task]}: expected a rate of 0 to 1.")
        problems += [
            f"`during['{task}']` holds {rate}: expected rates of 0 to 1." for rate in within[task] if not 0 <= rate <= 1
        ]
    if problems:
        raise ValueError("\n".join(problems))
