# SPDX-License-Identifier: Apache-2.0
"""Meta-World as a test of forgetting: tasks, demonstrations, datasets, rollouts on paired seeds, success; no training.

Only what needs no LeRobot is imported here: `_dataset`, `_columns` and `_rollout` bring it, which takes many seconds.
"""

from lerobot_craft.evaluation._demonstrations import Demonstration, demonstrate
from lerobot_craft.evaluation._forgetting import ForgettingMetrics, forgetting_metrics
from lerobot_craft.evaluation._success import TaskSuccess, wilson_interval
from lerobot_craft.evaluation._tasks import (
    Expert,
    Simulator,
    check_tasks,
    instruction,
    instruction_vector,
    task_names,
)

__all__ = [
    "Demonstration",
    "Expert",
    "ForgettingMetrics",
    "Simulator",
    "TaskSuccess",
    "check_tasks",
    "demonstrate",
    "forgetting_metrics",
    "instruction",
    "instruction_vector",
    "task_names",
    "wilson_interval",
]
