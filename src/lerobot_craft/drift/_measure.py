# SPDX-License-Identifier: Apache-2.0
"""Everything that is measured about one student, beside a teacher who is asked once; writes nothing.

As deployed, a student is its weights and its processors, and either can do the damage. So its actions are compared
three times: as it is; its weights behind the teacher's processors; the teacher's weights behind its processors. Hidden
states and token distributions are compared behind the teacher's processors, where both policies see the same tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from lerobot.configs.types import FeatureType
from torch import Tensor

from lerobot_craft.caching._teacher import Teacher
from lerobot_craft.drift._actions import (
    DriftResult,
    action_units,
    answer,
    by_task,
    distances,
    noise_seed,
    over_joints,
    summarise,
)
from lerobot_craft.drift._checkpoints import same_processing
from lerobot_craft.drift._features import FeatureDrift, LayerDrift, tap_every_layer
from lerobot_craft.drift._frames import Batch, Frames
from lerobot_craft.drift._intervals import Interval, bootstrap
from lerobot_craft.drift._language import make_swap
from lerobot_craft.drift._tokens import TokenDrift, speaks_tokens, token_kl
from lerobot_craft.errors import TapError, UsageError
from lerobot_craft.policies import teacher_labels

# A student that answers a swap by less than this share of the teacher's answer ignores the instruction.
IGNORES_BELOW = 0.2
# A teacher whose actions move by less, in standard deviations, does not follow the instruction itself.
LEAST_ANSWER = 0.01

type OnFrames = Callable[[int], None]


@dataclass(frozen=True)
class LanguageDrift:
    """How far the actions move when the instruction is swapped for another of the dataset's.

    Attributes:
        teacher: The teacher's actions, in standard deviations.
        student: The student's.
        ratio: The student's share of the teacher's; None where the teacher itself does not follow.
        ignores: Whether the student ignores the instruction, and the teacher does not.
    """

    teacher: Interval
    student: Interval
    ratio: float | None
    ignores: bool


@dataclass(frozen=True)
class PolicyDrift:
    """How far one student is from its teacher.

    Attributes:
        action: Its actions, as deployed.
        weights: Its weights behind the teacher's processors.
        statistics: The teacher's weights behind its processors.
        features: Its layers; none where the policy's type has no adapter that knows them.
        token_kl: Its token distribution; None for a policy without tokens.
        language: Its answer to another instruction; None where the frames have one only.
    """

    action: DriftResult
    weights: Interval
    statistics: Interval
    features: tuple[LayerDrift, ...]
    token_kl: TokenDrift | None
    language: LanguageDrift | None


class Comparison:
    """A teacher's answers on some frames, with which students are compared one after the other.

    Args:
        teacher: The teacher.
        frames: The frames.
        seed: Of the policies' noise and the intervals.
        on_frames: Told the number of frames just done, for the teacher and for each student.

    Raises:
        UsageError: If the teacher's actions are not finite.
    """

    def __init__(self, teacher: Teacher, frames: Frames, seed: int, on_frames: OnFrames) -> None:
        self._teacher = teacher
        self._frames = frames
        self._seed = seed
        self._on_frames = on_frames
        self._units = action_units(frames.dataset)
        inputs = teacher.policy.config.input_features
        numbers = [name for name, feature in inputs.items() if feature.type is not FeatureType.VISUAL]
        self._swap = make_swap(frames, numbers)
        self._labels: list[Batch] = []
        self._actions, self._swapped = self._ask_teacher()
        if not bool(self._actions.isfinite().all()):
            raise UsageError("The teacher's actions are not finite: check `--teacher.path` and its statistics.")

    def _ask_teacher(self) -> tuple[Tensor, Tensor | None]:
        actions, swapped = [], []
        for number, (place, batch) in enumerate(zip(self._frames.places(), self._frames.batches(), strict=True)):
            seed = noise_seed(self._seed, number)
            actions.append(answer(self._teacher, batch, seed))
            if self._swap is not None:
                swapped.append(answer(self._teacher, self._swap.apply(batch, place), seed))
            if speaks_tokens(self._teacher):
                shared = self._teacher.preprocess(dict(batch))
                self._labels.append(teacher_labels(self._teacher.policy, shared, seed))
            self._on_frames(len(actions[-1]))
        return torch.cat(actions), torch.cat(swapped) if swapped else None

    def of(self, student: Teacher) -> PolicyDrift:
        """Return the drift of a student of the teacher's type and sizes."""
        asked = _Answers(self._teacher, student)
        for number, (place, batch) in enumerate(zip(self._frames.places(), self._frames.batches(), strict=True)):
            seed = noise_seed(self._seed, number)
            asked.actions.append(answer(student, batch, seed))
            if self._swap is not None:
                asked.swapped.append(answer(student, self._swap.apply(batch, place), seed))
            if asked.own_processing:
                asked.weights.append(answer(asked.only_weights, batch, seed))
                asked.statistics.append(answer(asked.only_statistics, batch, seed))
            shared = self._teacher.preprocess(dict(batch))
            if asked.features is not None:
                asked.features.add(shared)
            if self._labels:
                asked.kl.append(token_kl(self._teacher, student, {**shared, **self._labels[number]}))
            self._on_frames(len(asked.actions[-1]))
        return self._summary(asked)

    def _summary(self, asked: "_Answers") -> PolicyDrift:
        action = summarise(self._actions, torch.cat(asked.actions), self._frames, self._units, self._seed)
        # With the teacher's own processing, all of the drift is the weights'.
        weights, statistics = action.all, Interval(0.0, 0.0, 0.0)
        if asked.own_processing:
            weights = self._distance(self._actions, torch.cat(asked.weights))
            statistics = self._distance(self._actions, torch.cat(asked.statistics))
        return PolicyDrift(
            action,
            weights,
            statistics,
            () if asked.features is None else asked.features.layers(self._frames, self._seed),
            self._token_drift(torch.cat(asked.kl)) if asked.kl else None,
            self._language(asked),
        )

    def _distance(self, one: Tensor, other: Tensor) -> Interval:
        return bootstrap(over_joints(distances(one, other, self._units)), self._frames.episodes, self._seed)[0]

    def _token_drift(self, kl: Tensor) -> TokenDrift:
        overall = bootstrap(kl, self._frames.episodes, self._seed)[0]
        return TokenDrift(overall, by_task(kl, self._frames, self._seed))

    def _language(self, asked: "_Answers") -> LanguageDrift | None:
        if self._swapped is None:
            return None
        teacher = self._distance(self._actions, self._swapped)
        student = self._distance(torch.cat(asked.actions), torch.cat(asked.swapped))
        if teacher.mean < LEAST_ANSWER:
            return LanguageDrift(teacher, student, None, ignores=False)
        ratio = student.mean / teacher.mean
        return LanguageDrift(teacher, student, ratio, ratio < IGNORES_BELOW)


class _Answers:
    """What a student says, batch by batch."""

    def __init__(self, teacher: Teacher, student: Teacher) -> None:
        self.own_processing = not same_processing(teacher, student)
        self.only_weights = Teacher(student.policy, teacher.preprocess, teacher.postprocess)
        self.only_statistics = Teacher(teacher.policy, student.preprocess, student.postprocess)
        self.features = _features(teacher, student)
        self.actions: list[Tensor] = []
        self.swapped: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.statistics: list[Tensor] = []
        self.kl: list[Tensor] = []


def _features(teacher: Teacher, student: Teacher) -> FeatureDrift | None:
    try:
        return FeatureDrift(tap_every_layer(teacher), tap_every_layer(student))
    except TapError:
        # Raised for types whose layers nobody described: their actions are compared all the same.
        return None
