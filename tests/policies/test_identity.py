# SPDX-License-Identifier: Apache-2.0
"""Who a teacher is does not depend on where it has been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lerobot.processor import NormalizerProcessorStep

from lerobot_craft.policies import identify_processor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Loaded


def test_statistics_are_the_same_after_they_were_moved(load: Callable[[str], Loaded]) -> None:
    pipeline: Any = load("smolvla").preprocess
    step = next(step for step in pipeline.steps if isinstance(step, NormalizerProcessorStep))
    before = identify_processor(pipeline)
    shapes = {name: value.shape for name, value in step.state_dict().items()}
    # What LeRobot does by itself when a batch on another device comes along.
    step.to(device="cpu")
    assert {name: value.shape for name, value in step.state_dict().items()} != shapes
    assert identify_processor(pipeline) == before
