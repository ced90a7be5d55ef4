# SPDX-License-Identifier: Apache-2.0
"""Who a teacher is, in a line: its weights, its statistics, its tap. Builders and readers of caches both use these."""

from lerobot.processor import NormalizerProcessorStep, PolicyProcessorPipeline
from torch import nn

from lerobot_craft.anchors import Json, canonical_json, fingerprint
from lerobot_craft.policies._base import base_policy
from lerobot_craft.policies._tap import Tap


def identify_policy(policy: nn.Module) -> str:
    """Return what tells this policy's weights from any other's; call it before adapters are put in."""
    return fingerprint(policy.state_dict(), {"type": base_policy(policy).name})


def identify_processor(preprocessor: PolicyProcessorPipeline) -> str:
    """Return what tells a preprocessor's statistics from any other's; call it before any of them are widened."""
    tensors = {}
    modes: list[Json] = []
    for index, step in enumerate(step for step in preprocessor.steps if isinstance(step, NormalizerProcessorStep)):
        # As one row each: LeRobot drops the axes of single numbers when it moves them to another device.
        tensors.update({f"{index}/{name}": value.flatten() for name, value in step.state_dict().items()})
        modes.append({kind.value: mode.value for kind, mode in step.norm_map.items()})
    return fingerprint(tensors, {"modes": [*modes]})


def identify_tap(tap: Tap) -> str:
    """Return a tap as one line of text."""
    return canonical_json(tap.describe())
