# SPDX-License-Identifier: Apache-2.0
"""What the constrained step asks of a retention term; no term itself."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from lerobot_craft.dual import Reference


class RetentionTerm(Protocol):
    """A callable that returns the retention loss for the next anchor batch.

    The loss is a scalar with a graph that reaches the model's parameters. Each call takes the next batch; where there
    are no batches (a distance between parameters) each call returns the loss at the present parameters.
    """

    def __call__(self) -> Tensor:
        """Return the loss, a 0-dimensional tensor."""
        ...


@runtime_checkable
class StatefulTerm(Protocol):
    """A term with something to save: `RetentionConstraint.state_dict` includes it."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that survives a step."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        ...


@runtime_checkable
class PreparingTerm(Protocol):
    """A term that can prepare its next anchors before they are needed: `RetentionConstraint.look_ahead` asks it to."""

    def look_ahead(self) -> None:
        """Do for the next call what needs no parameters; what goes wrong is raised by that call."""
        ...


@runtime_checkable
class ReferencedTerm(Protocol):
    """A term that knows the floor and the scale of its own loss, for a budget in relative units."""

    def reference(self) -> Reference:
        """Measure the reference on the teacher; called once, before the first step."""
        ...
