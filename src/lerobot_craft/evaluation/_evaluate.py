# SPDX-License-Identifier: Apache-2.0
"""Success of some checkpoints on some tasks, as a table and a file; what an episode is, `_rollout` knows."""

import json
from typing import Any

import torch
from tqdm import tqdm

from lerobot_craft.evaluation._demonstrations import SEEDS_PER_RUN
from lerobot_craft.evaluation._rollout import Rollouts
from lerobot_craft.evaluation._settings import EvaluationSettings
from lerobot_craft.evaluation._success import TaskSuccess
from lerobot_craft.evaluation._summary import success_lines, success_results
from lerobot_craft.evaluation._tasks import check_tasks


def evaluate(settings: EvaluationSettings) -> str:
    """Run the episodes and return the table.

    Raises:
        CraftError: If a task or a checkpoint is not there.
    """
    check_tasks("tasks", settings.tasks)
    # One thread: faster for a small policy, and the same numbers however many cores there are.
    torch.set_num_threads(1)
    first = SEEDS_PER_RUN * settings.seed
    rollouts = Rollouts(range(first, first + settings.episodes))
    longest = dict.fromkeys(settings.tasks, settings.max_steps)
    total = len(settings.checkpoints) * len(longest) * settings.episodes
    with tqdm(total=total, desc="rollouts", unit="episode", leave=False) as bar:
        found = {str(path): rollouts.success(path, longest, bar.update) for path in settings.checkpoints}
    if settings.output is not None:
        settings.output.parent.mkdir(parents=True, exist_ok=True)
        settings.output.write_text(json.dumps(_results(settings, found), indent=2) + "\n", encoding="utf-8")
    return "\n".join(line for name, successes in found.items() for line in success_lines(name, successes)) + "\n"


def _results(settings: EvaluationSettings, found: dict[str, list[TaskSuccess]]) -> dict[str, Any]:
    return {
        "episodes_per_task": settings.episodes,
        "max_steps": settings.max_steps,
        "seed": settings.seed,
        "checkpoints": {name: success_results(successes) for name, successes in found.items()},
    }
