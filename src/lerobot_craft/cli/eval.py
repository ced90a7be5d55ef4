# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft eval`: success of checkpoints over tasks; parses, hands over, returns the exit code.

With `--env.type` it goes through LeRobot's own evaluation, in any of its environments; without, through fast rollouts
on Meta-World states.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.cli._arguments import given, normalize
from lerobot_craft.cli._parser import comma_separated, make_parser
from lerobot_craft.errors import UsageError

EXAMPLES = """\
examples:
  lerobot-craft eval --policy.paths=[outputs/demo/teacher,outputs/demo/runs/craft/checkpoints/last/pretrained_model] \\
      --env.type=metaworld_state --env.task=hammer,push,drawer-open --eval.n_episodes=20 \\
      --old_tasks=hammer,push --new_tasks=drawer-open
  lerobot-craft eval --policy.path=outputs/demo/teacher --tasks=hammer,push --episodes=50

Every flag of `lerobot-eval` that begins with `--env.` or `--eval.` works, and `--rename_map`; `--env.type` is
any that LeRobot knows, and metaworld_state.
"""

# What only one of the two ways understands.
FAST = {"tasks": "--env.task", "episodes": "--eval.n_episodes", "max_steps": "--env.episode_length"}
THEIRS = ("--env.", "--eval.", "--rename_map")
SLOW = ("old_tasks", "new_tasks", "sequence", "videos", "output_dir", "device")


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `eval`.

    Returns:
        The exit code.
    """
    words = normalize(arguments)
    found, theirs = parser().parse_known_args(words)
    if wrong := [word for word in theirs if word.startswith("-") and not word.startswith(THEIRS)]:
        raise UsageError(f"`{'`, `'.join(wrong)}` is no flag of this command: see `lerobot-craft eval --help`.")
    if given(words, "env.type") is None:
        sys.stdout.write(_on_states(found, theirs))
    else:
        sys.stdout.write(_in_environment(found, theirs))
    return 0


def _on_states(found: argparse.Namespace, theirs: Sequence[str]) -> str:
    if theirs:
        raise UsageError(f"`{theirs[0]}` needs `--env.type`, such as `--env.type=metaworld_state`.")
    flags = {"checkpoints": "--policy.path", "tasks": "--tasks"}
    if missing := [flag for name, flag in flags.items() if name not in found]:
        raise UsageError(
            f"`{'` and `'.join(missing)}` must be given, or `--env.type` for any other environment: see "
            "`lerobot-craft eval --help`."
        )
    if slow := [f"--{name}" for name in SLOW if name in found]:
        raise UsageError(f"`{'`, `'.join(slow)}` needs `--env.type`, such as `--env.type=metaworld_state`.")
    from lerobot_craft.evaluation._settings import EvaluationSettings

    values = vars(found)
    settings = EvaluationSettings(**(values | {"checkpoints": tuple(map(Path, values["checkpoints"]))}))
    from lerobot_craft.evaluation._evaluate import evaluate

    return evaluate(settings)


def _in_environment(found: argparse.Namespace, theirs: Sequence[str]) -> str:
    if wrong := [f"`--{name}` is `{flag}`" for name, flag in FAST.items() if name in found]:
        raise UsageError(f"With `--env.type`, {' and '.join(wrong)}.")
    if "output" in found:
        raise UsageError(
            "With `--env.type`, every outcome goes to `eval.json` in `--output_dir`: leave out `--output`."
        )
    if "checkpoints" not in found:
        raise UsageError("`--policy.paths` must be given, as in `--policy.paths=[TEACHER,STUDENT]`.")
    from lerobot_craft.evaluation._environment_evaluate import evaluate_in_environment
    from lerobot_craft.evaluation._environment_settings import EnvironmentSettings, parse_environment

    env, evaluation, names = parse_environment(theirs)
    return evaluate_in_environment(EnvironmentSettings(env=env, eval=evaluation, rename_map=names, **vars(found)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand's own flags."""
    made = make_parser(
        "eval",
        "Try checkpoints on tasks from the same starts: success with 95 % intervals, old and new apart, "
        "and what was forgotten. With --env.type in any LeRobot environment, through LeRobot's own evaluation; "
        "finished parts are kept and not run again. Without, on Meta-World states, as the demo does it, "
        "which is faster.",
        EXAMPLES,
    )
    made.add_argument(
        "--policy.path",
        "--policy.paths",
        dest="checkpoints",
        metavar="[P,P]",
        type=comma_separated,
        help="checkpoints; the first is the teacher",
    )
    made.add_argument("--seed", metavar="N", type=int, help="of the starts, the same for every checkpoint")
    group = made.add_argument_group(
        "with --env.type",
        "--env.* (type, task, …) and --eval.* (n_episodes: 50 per task, batch_size: by cores, …) as in lerobot-eval",
    )
    group.add_argument(
        "--old_tasks", metavar="A,B", type=comma_separated, help="tasks, or groups, that the teacher knew"
    )
    group.add_argument("--new_tasks", metavar="A,B", type=comma_separated, help="tasks, or groups, that were taught")
    group.add_argument(
        "--sequence",
        action="store_true",
        help="the checkpoints are stages, each taught the next of --new_tasks; else each is a student of the first",
    )
    group.add_argument("--videos", metavar="N", nargs="?", const=4, type=int, help="film N episodes per task (4)")
    group.add_argument("--output_dir", metavar="DIR", type=Path, help="for results and videos (outputs/eval)")
    group.add_argument("--policy.device", dest="device", metavar="D", help="cpu, cuda, … (the checkpoint's own)")
    group = made.add_argument_group("without --env.type: Meta-World states")
    group.add_argument(
        "--tasks", metavar="A,B", type=comma_separated, help="Meta-World tasks, such as push,drawer-open"
    )
    group.add_argument("--episodes", metavar="N", type=int, help="episodes per task and checkpoint (20)")
    group.add_argument("--max_steps", metavar="N", type=int, help="steps after which an episode has failed (200)")
    group.add_argument("--output", metavar="JSON", type=Path, help="a file for every episode's outcome")
    return made
