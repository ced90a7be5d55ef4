# SPDX-License-Identifier: Apache-2.0
"""Which adapter serves which LeRobot policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, override

from lerobot_craft.errors import TapError
from lerobot_craft.policies._act import ActAdapter
from lerobot_craft.policies._base import Batch, PolicyAdapter, Trace, base_policy, policy_device
from lerobot_craft.policies._diffusion import DiffusionAdapter
from lerobot_craft.policies._pi import Pi0Adapter, Pi0FastAdapter, Pi05Adapter
from lerobot_craft.policies._random import seeded
from lerobot_craft.policies._smolvla import SmolVLAAdapter

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy
    from torch import Tensor, nn

    from lerobot_craft.taps import TapPoint

ADAPTERS: dict[str, PolicyAdapter] = {
    adapter.policy_type: adapter
    for adapter in (
        ActAdapter(),
        DiffusionAdapter(),
        SmolVLAAdapter(),
        Pi0Adapter(),
        Pi05Adapter(),
        Pi0FastAdapter(),
    )
}


class OtherAdapter(PolicyAdapter):
    """A policy nobody described: tapped by module path during its own training forward, in `eval()` mode.

    Args:
        policy_type: LeRobot's name of the type.
    """

    def __init__(self, policy_type: str) -> None:
        self.policy_type = policy_type

    @override
    def layers(self, policy: PreTrainedPolicy) -> list[tuple[TapPoint, ...]]:
        raise TapError(
            f"The layers of policy type {self.policy_type!r} are not known (known: {', '.join(ADAPTERS)}). "
            "Name a module instead: `--tap=PATH`, one of `policy.named_modules()`."
        )

    @override
    def run(self, policy: PreTrainedPolicy, batch: Batch, trace: Trace) -> None:
        with seeded(0, policy_device(policy)):
            policy.forward(dict(batch))

    @override
    def actions(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Tensor:
        chunk: Tensor = policy.predict_action_chunk(dict(batch))
        expected = len(policy.config.action_delta_indices)
        if chunk.shape[1] != expected:
            raise TapError(
                f"Policy type {self.policy_type!r} predicts {chunk.shape[1]} action steps where its loss "
                f"wants {expected}: they cannot be its labels. Use `retention_mode=hidden` or `replay`."
            )
        return chunk

    @override
    def example_batch(self, policy: PreTrainedPolicy) -> Batch:
        raise TapError(
            f"What policy type {self.policy_type!r} reads is not known; pass `batch`, preprocessed, labelled."
        )


def adapter_for(model: nn.Module) -> PolicyAdapter:
    """The adapter of a policy, wrapped or not. A subclass of a known policy is served as its parent."""
    policy = base_policy(model)
    for kind in type(policy).__mro__:
        name = vars(kind).get("name")
        if name in ADAPTERS:
            return ADAPTERS[name]
    return OtherAdapter(policy.name)
