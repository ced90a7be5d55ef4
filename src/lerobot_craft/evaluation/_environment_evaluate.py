# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in any LeRobot environment, through LeRobot's own evaluation; finished parts are kept and used again."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import draccus
import gymnasium as gym
import torch
from lerobot.envs import preprocess_observation
from lerobot.processor import PolicyProcessorPipeline, RenameObservationsProcessorStep

from lerobot_craft.anchors import Json, canonical_json, fingerprint
from lerobot_craft.anchors._files import write_whole
from lerobot_craft.caching._teacher import Teacher, load_teacher
from lerobot_craft.errors import UsageError
from lerobot_craft.evaluation._environment_settings import EnvironmentSettings
from lerobot_craft.evaluation._success import TaskSuccess
from lerobot_craft.evaluation._summary import (
    Split,
    make_split,
    sequences,
    success_results,
    table,
)
from lerobot_craft.training import _compat

SCHEMA = 1
RESULTS = "eval.json"
PARTS = "parts"


@dataclass(frozen=True)
class _Task:
    """One task of an environment.

    Attributes:
        name: `GROUP`, or `GROUP/NUMBER` where a group has more than its first.
        group: LeRobot's name of the group.
        number: LeRobot's number of the task within it.
        env: Its environments, side by side.
    """

    name: str
    group: str
    number: int
    env: gym.vector.VectorEnv[Any, Any, Any]


def evaluate_in_environment(settings: EnvironmentSettings) -> str:
    """Run what has not been run, write the JSON file and return the table.

    Raises:
        CraftError: If a checkpoint, a task or a feature is not there.
    """
    found: dict[str, list[TaskSuccess]] = {}
    films: dict[str, dict[str, list[str]]] = {}
    split = Split()
    for path in settings.checkpoints:
        with _made(settings) as tasks:
            names = [task.name for task in tasks]
            split = make_split(settings.old_tasks, settings.new_tasks, names, sequence=settings.sequence)
            parts = list(_parts(settings, path, tasks))
        found[path] = [TaskSuccess(part["settings"]["task"], tuple(part["outcomes"])) for part in parts]
        films[path] = {part["settings"]["task"]: part["videos"] for part in parts}
    metrics = sequences(found, split)
    results = {
        "schema": SCHEMA,
        "env": draccus.encode(settings.env),
        "episodes_per_task": settings.eval.n_episodes,
        "seed": settings.seed,
        "old_tasks": list(split.old),
        "new_tasks": list(split.all_new),
        "sequence": split.sequence,
        "checkpoints": {name: success_results(successes) for name, successes in found.items()},
        "metrics": {name: asdict(values) for name, values in metrics.items()},
        "videos": films if settings.videos else {},
    }
    write_whole(settings.output_dir / RESULTS, (json.dumps(results, indent=2) + "\n").encode())
    return f"{table(found, split)}every outcome: {settings.output_dir / RESULTS}\n"


@contextlib.contextmanager
def _made(settings: EnvironmentSettings) -> Iterator[list[_Task]]:
    # LeRobot prints what it builds, and standard output is for the table.
    try:
        with contextlib.redirect_stdout(sys.stderr):
            made = _compat.make_env(
                settings.env, n_envs=settings.eval.batch_size, use_async_envs=settings.eval.use_async_envs
            )
    except (ImportError, ValueError, KeyError, gym.error.Error) as error:
        raise UsageError(
            f"`--env.type={settings.env.type} --env.task={settings.env.task}` could not be made: "
            f"{type(error).__name__}: {error}"
        ) from error
    try:
        yield [
            _Task(group if list(numbered) == [0] else f"{group}/{number}", group, number, env)
            for group, numbered in made.items()
            for number, env in numbered.items()
        ]
    finally:
        _compat.close_envs(made)


def _parts(settings: EnvironmentSettings, path: str, tasks: Sequence[_Task]) -> Iterator[dict[str, Any]]:
    with contextlib.redirect_stdout(sys.stderr):
        policy = load_teacher(path, settings.device, "--policy.paths")
    _rename(policy, settings.rename_map)
    processors = _compat.make_env_pre_post_processors(env_cfg=settings.env, policy_cfg=policy.policy.config)
    # Every setting that an outcome depends on: a part is used again only if all of them are the same.
    shared = {
        "schema": SCHEMA,
        "policy": _identify(policy),
        "env": draccus.encode(settings.env),
        "episodes": settings.eval.n_episodes,
        "side_by_side": settings.eval.batch_size,
        "seed": settings.seed,
        "videos": settings.videos,
        "rename_map": dict(settings.rename_map),
    }
    checked = False
    for task in tasks:
        identity = {**shared, "task": task.name}
        if task.group in (settings.env.task or "").split(","):
            # The group is the task's own name, so that the tasks beside it do not matter.
            identity["env"] = {**shared["env"], "task": task.group}
        file = _part_file(settings.output_dir, identity)
        part = _known(file, identity)
        if part is None:
            if not checked:
                _check_features(path, policy, task, processors[0], settings.rename_map)
                checked = True
            metrics = _run(settings, policy, task, processors, file.stem)
            outcomes = [bool(end) for end in metrics["successes"]]
            part = {"settings": identity, "outcomes": outcomes, "videos": metrics["video_paths"]}
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, (json.dumps(part, indent=2) + "\n").encode())
        yield part


def _rename(policy: Teacher, names: Mapping[str, str]) -> None:
    pipeline: Any = policy.preprocess
    for step in pipeline.steps:
        if isinstance(step, RenameObservationsProcessorStep) and names:
            step.rename_map = dict(names)


def _identify(policy: Teacher) -> str:
    """Return what tells a checkpoint from any other, wherever it lies: weights, settings, both processors."""
    tensors = dict(policy.policy.state_dict())
    steps: list[Json] = []
    pipelines: dict[str, Any] = {"before": policy.preprocess, "after": policy.postprocess}
    for name, pipeline in pipelines.items():
        for number, step in enumerate(pipeline.steps):
            tensors |= {f"{name}/{number}/{key}": value for key, value in step.state_dict().items()}
            steps.append(f"{name}/{number}/{type(step).__name__}")
    config = draccus.encode(policy.policy.config) | {"pretrained_path": None}
    return fingerprint(tensors, {"type": policy.policy.config.type, "config": config, "steps": steps})


def _part_file(output_dir: Path, identity: dict[str, Any]) -> Path:
    digest = hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:16]
    return output_dir / PARTS / f"{digest}.json"


def _known(file: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    part: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return part if part["settings"] == identity else None


def _run(
    settings: EnvironmentSettings, policy: Teacher, task: _Task, processors: tuple[Any, Any], name: str
) -> dict[str, Any]:
    # Before each task, so that a policy that samples does the same whatever was run or read before it.
    _compat.set_seed(settings.seed)
    config = policy.policy.config
    with (
        contextlib.redirect_stdout(sys.stderr),
        torch.no_grad(),
        torch.autocast(torch.device(config.device).type, enabled=config.use_amp),
    ):
        info = _compat.eval_policy_all(
            envs={task.group: {task.number: task.env}},
            policy=policy.policy,
            env_preprocessor=processors[0],
            env_postprocessor=processors[1],
            preprocessor=policy.preprocess,
            postprocessor=policy.postprocess,
            n_episodes=settings.eval.n_episodes,
            max_episodes_rendered=settings.videos,
            videos_dir=settings.output_dir / "videos" / name if settings.videos else None,
            start_seed=settings.seed,
        )
    metrics: dict[str, Any] = info["per_task"][0]["metrics"]
    return metrics


def _check_features(
    path: str,
    policy: Teacher,
    task: _Task,
    env_preprocessor: PolicyProcessorPipeline[Any, Any],
    names: Mapping[str, str],
) -> None:
    """Refuse a checkpoint that the environment cannot feed, judged by an observation as the policy would get it."""
    observation, _ = task.env.reset(seed=0)
    seen = env_preprocessor({**preprocess_observation(observation), "task": [""] * task.env.num_envs})
    tensors = {names.get(name, name): value for name, value in seen.items() if isinstance(value, torch.Tensor)}
    shapes = {name: tuple(value.shape[1:]) for name, value in tensors.items()}
    config = policy.policy.config
    problems = []
    for name, feature in config.input_features.items():
        is_image = name in config.image_features
        if name not in shapes and not is_image:
            problems.append(f"`{name}`, which the environment does not give")
        elif not is_image and shapes[name] != tuple(feature.shape):
            problems.append(f"`{name}` of shape {tuple(feature.shape)}, where the environment gives {shapes[name]}")
    cameras = set(config.image_features)
    # Policies fill in cameras that they lack, but not all of them.
    if cameras and not cameras & set(shapes):
        problems.append(f"a camera `{'`, `'.join(sorted(cameras))}`, which the environment does not give")
    action = config.action_feature
    wanted = task.env.single_action_space.shape
    if action is not None and wanted is not None and tuple(action.shape) != tuple(wanted):
        problems.append(f"actions of shape {tuple(action.shape)}, where the environment takes {tuple(wanted)}")
    if problems:
        raise UsageError(
            f"`{path}` does not fit `{task.name}`: it has {'; '.join(problems)}. The environment gives "
            f"{', '.join(f'`{name}` {shape}' for name, shape in sorted(shapes.items()))}. Where only names differ, "
            'pass `--rename_map={"OBSERVED": "EXPECTED"}`.'
        )
