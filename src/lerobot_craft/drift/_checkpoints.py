# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints a command means, and whether two of them can be compared; measures nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.processor import DataProcessorPipeline
from lerobot.utils.constants import CHECKPOINTS_DIR, PRETRAINED_MODEL_DIR

from lerobot_craft.caching._teacher import Teacher
from lerobot_craft.errors import UsageError
from lerobot_craft.policies import base_policy

# More names than these do not make a message clearer.
MOST_NAMES = 3


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint.

    Attributes:
        path: Its folder or Hub repository.
        step: The training step it was saved at, where its folder says so.
    """

    path: str
    step: int | None = None

    @property
    def name(self) -> str:
        """The last folder of its path that says something; for a checkpoint of a run, the run's folder and the step."""
        folder = Path(self.path)
        if self.step is not None:
            return f"{folder.resolve().parent.parent.parent.name} step {self.step}"
        return folder.parent.name if folder.name == PRETRAINED_MODEL_DIR else folder.name


def find_checkpoints(paths: Iterable[str], flag: str) -> list[Checkpoint]:
    """Return the checkpoints that some paths name.

    Args:
        paths: Folders of a checkpoint, of a step (`checkpoints/000100`), of a run, of which all checkpoints are meant,
            or Hub repositories.
        flag: Where they were given, for the message.

    Raises:
        UsageError: If a folder holds no checkpoint.
    """
    found: list[Checkpoint] = []
    for path in paths:
        found += _checkpoints_of(path, flag)
    return found


def one_checkpoint(path: str, flag: str) -> Checkpoint:
    """Return the one checkpoint that a path names.

    Raises:
        UsageError: If it names several, or none.
    """
    found = _checkpoints_of(path, flag)
    if len(found) > 1:
        steps = ", ".join(str(checkpoint.step) for checkpoint in found)
        raise UsageError(f"`{flag}={path}` holds checkpoints of steps {steps}: name one, such as `{found[-1].path}`.")
    return found[0]


def _checkpoints_of(path: str, flag: str) -> list[Checkpoint]:
    folder = Path(path)
    # What is no folder here may be on the Hub; LeRobot says so where it is not.
    if not folder.is_dir() or (folder / "config.json").is_file():
        return [Checkpoint(path, _step(folder))]
    if (folder / PRETRAINED_MODEL_DIR).is_dir():
        return [Checkpoint(str(folder / PRETRAINED_MODEL_DIR), _step(folder / PRETRAINED_MODEL_DIR))]
    inside = folder / CHECKPOINTS_DIR if (folder / CHECKPOINTS_DIR).is_dir() else folder
    steps = sorted(part for part in inside.iterdir() if part.name.isdecimal() and not part.is_symlink())
    if whole := [part / PRETRAINED_MODEL_DIR for part in steps if (part / PRETRAINED_MODEL_DIR).is_dir()]:
        return [Checkpoint(str(part), _step(part)) for part in whole]
    raise UsageError(
        f"`{flag}={path}` holds no checkpoint: expected a folder with `config.json` and `model.safetensors`, or "
        f"a run's folder with `{CHECKPOINTS_DIR}/STEP/{PRETRAINED_MODEL_DIR}`. A run saves its first one after "
        "`--save_freq` steps."
    )


def _step(folder: Path) -> int | None:
    name = folder.resolve().parent.name
    return int(name) if folder.name == PRETRAINED_MODEL_DIR and name.isdecimal() else None


def labels(checkpoints: Sequence[Checkpoint]) -> list[str]:
    """Return a name for each checkpoint: a short one where that tells them apart, or its path."""
    names = [checkpoint.name for checkpoint in checkpoints]
    return names if len(set(names)) == len(names) else [checkpoint.path for checkpoint in checkpoints]


def check_comparable(teacher: Teacher, student: Teacher, path: str) -> None:
    """Refuse a student that is not the teacher with other weights.

    Args:
        teacher: The teacher.
        student: The student.
        path: Where it was loaded from, for the message.

    Raises:
        UsageError: If type or sizes differ.
    """
    known, other = base_policy(teacher.policy), base_policy(student.policy)
    start = f"`--policy.path={path}` cannot be compared with the teacher:"
    if known.config.type != other.config.type:
        raise UsageError(
            f"{start} it is of type {other.config.type!r} and the teacher of type {known.config.type!r}. "
            "Name the policy it was fine-tuned from as `--teacher.path`."
        )
    shapes = {name: list(tensor.shape) for name, tensor in known.state_dict().items()}
    others = {name: list(tensor.shape) for name, tensor in other.state_dict().items()}
    if names := [name for name in {**shapes, **others} if shapes.get(name) != others.get(name)]:
        listed = "; ".join(f"{name} {others.get(name)} here, {shapes.get(name)} there" for name in names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        raise UsageError(f"{start} their sizes differ ({listed}{more}). Name the policy it was fine-tuned from.")
    if (ours := len(known.config.action_delta_indices)) != (theirs := len(other.config.action_delta_indices)):
        raise UsageError(f"{start} it predicts {theirs} action steps and the teacher {ours}.")


def check_dataset(dataset: LeRobotDataset, config: PreTrainedConfig, repo_id: str) -> None:
    """Refuse a dataset whose numbers have other sizes than the policy reads and writes; images may be resized.

    Args:
        dataset: The dataset.
        config: The teacher's config.
        repo_id: The dataset's id as given, for the message.

    Raises:
        UsageError: With every feature that does not fit.
    """
    problems = []
    for name, feature in {**config.input_features, **config.output_features}.items():
        if feature.type is FeatureType.VISUAL:
            continue
        if name not in dataset.meta.features:
            problems.append(f"`{name}` is missing")
        elif (size := tuple(dataset.meta.features[name]["shape"])) != tuple(feature.shape):
            problems.append(f"`{name}` has shape {list(size)}, and the policy's is {list(feature.shape)}")
    if problems:
        raise UsageError(
            f"`--dataset.repo_id={repo_id}` does not fit the teacher: {'; '.join(problems)}. "
            "Use a dataset of the same robot."
        )


def same_processing(one: Teacher, other: Teacher) -> bool:
    """Return whether two policies' processors do the same, statistics and all; the device is not looked at."""
    return _same(one.preprocess, other.preprocess) and _same(one.postprocess, other.postprocess)


def _same(one: DataProcessorPipeline, other: DataProcessorPipeline) -> bool:
    if [type(step) for step in one.steps] != [type(step) for step in other.steps]:
        return False
    for step, twin in zip(one.steps, other.steps, strict=True):
        if step.get_config() != twin.get_config():
            return False
        state, twins = step.state_dict(), twin.state_dict()
        if state.keys() != twins.keys() or not all(torch.equal(state[name], twins[name]) for name in state):
            return False
    return True
