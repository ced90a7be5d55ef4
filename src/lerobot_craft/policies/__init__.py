# SPDX-License-Identifier: Apache-2.0
"""LeRobot policies as this package sees them: hidden states, own actions, own loss. Trains nothing.

| type | layers that `--layers_to_save` and `--hidden_layer` number | tokens |
|---|---|---|
| `act` | `model.encoder.layers` | latent, state, environment state, image cells |
| `diffusion` | keypoints, encoded image | one per observation step and camera |
| `smolvla` | the VLM's text layers | images, instruction, state |
| `pi0`, `pi05` | PaliGemma's language layers | images, instruction |
| `pi0_fast` | PaliGemma's language layers | images, instruction, BOS |

Any other policy is tapped by module path. The output of a language layer is the residual stream before the
final norm.
"""

from lerobot_craft.policies._base import Batch, PolicyAdapter, SampleLosses, base_policy
from lerobot_craft.policies._identity import identify_policy, identify_processor, identify_tap
from lerobot_craft.policies._loaded import check_loaded
from lerobot_craft.policies._older import older_preprocess
from lerobot_craft.policies._random import seeded
from lerobot_craft.policies._registry import ADAPTERS, adapter_for
from lerobot_craft.policies._support import import_support, import_support_for
from lerobot_craft.policies._tap import Tap, freeze_behind_tap, make_tap
from lerobot_craft.policies._targets import (
    TeacherTokens,
    action_token_logits,
    policy_loss,
    sample_losses,
    teacher_actions,
    teacher_labels,
    teacher_tokens,
)

POLICY_TYPES: tuple[str, ...] = tuple(ADAPTERS)

__all__ = [
    "POLICY_TYPES",
    "Batch",
    "PolicyAdapter",
    "SampleLosses",
    "Tap",
    "TeacherTokens",
    "action_token_logits",
    "adapter_for",
    "base_policy",
    "check_loaded",
    "freeze_behind_tap",
    "identify_policy",
    "identify_processor",
    "identify_tap",
    "import_support",
    "import_support_for",
    "make_tap",
    "older_preprocess",
    "policy_loss",
    "sample_losses",
    "seeded",
    "teacher_actions",
    "teacher_labels",
    "teacher_tokens",
]
