# SPDX-License-Identifier: Apache-2.0
"""The same frames under another instruction of the dataset; asks no policy."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from lerobot_craft.drift._frames import Batch, Frames

TASK = "task"


@dataclass(frozen=True)
class Swap:
    """For each frame, what another task would put in the place of its instruction.

    Attributes:
        texts: The other instruction.
        columns: Features that follow from the task alone, such as an embedded instruction, with the other task's
            value, [frames, dim].
    """

    texts: tuple[str, ...]
    columns: dict[str, Tensor]

    def apply(self, frames: Batch, place: slice) -> Batch:
        """Return a batch under the other instructions.

        Args:
            frames: The batch.
            place: Where its frames stand among all of them.
        """
        swapped = {**frames, TASK: list(self.texts[place])}
        for name, column in self.columns.items():
            values = column[place].to(frames[name])
            # Where the policy reads several steps, the instruction is the same at all of them.
            swapped[name] = values.reshape(
                len(values), *[1] * (frames[name].ndim - values.ndim), *values.shape[1:]
            ).expand_as(frames[name])
        return swapped


def make_swap(frames: Frames, inputs: Iterable[str]) -> Swap | None:
    """Return the swap, or None where the frames have one instruction only.

    The other instructions of the dataset take turns.

    Args:
        frames: The frames.
        inputs: The numbers the policy reads, by name: those that are a function of the task are swapped too.
    """
    names = sorted(set(frames.tasks))
    if len(names) < 2:
        return None
    first = {task: frames.tasks.index(task) for task in names}
    numbers = {task: number for number, task in enumerate(names)}
    texts = []
    for turn, task in enumerate(frames.tasks):
        texts.append(names[(numbers[task] + 1 + turn % (len(names) - 1)) % len(names)])
    partners = [first[text] for text in texts]
    own = [first[task] for task in frames.tasks]
    columns = {}
    # With one frame a task, everything would look like a function of it.
    if len(frames) > len(names):
        for name in inputs:
            column = frames.column(name)
            if torch.equal(column, column[own]) and not torch.equal(column, column[partners]):
                columns[name] = column[partners]
    return Swap(tuple(texts), columns)
