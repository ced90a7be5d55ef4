# SPDX-License-Identifier: Apache-2.0
"""What this package must know about a policy type. Holds no policy and no tensor of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION, OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.taps import Segment, TapPoint, TokenLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Batch = dict[str, Any]
type Forward = Callable[..., tuple[Tensor, dict[str, Any]]]
ACTION_IS_PAD = "action_is_pad"


@dataclass
class Trace:
    """What one forward says about its tokens; filled while it runs, so that an early stop loses nothing.

    Attributes:
        segments: Runs of tokens in the order of concatenation.
        valid: True where a token is real, [batch, tokens]; None if the forward stopped before it was known.
    """

    segments: list[Segment] = field(default_factory=list)
    valid: Tensor | None = None


class SampleLosses(NamedTuple):
    """A policy's own loss, sample by sample: the policy's is Σ weight·loss / Σ weight.

    Attributes:
        losses: [batch], with grad.
        weights: How much of the batch's loss each sample is, [batch].
    """

    losses: Tensor
    weights: Tensor

    def mean(self, rows: slice) -> Tensor:
        """The policy's own loss on some of the samples, in float32 or wider."""
        losses = self.losses[rows]
        losses = losses.to(torch.promote_types(losses.dtype, torch.float32))
        weights = self.weights[rows].to(losses)
        return (losses * weights).sum() / weights.sum().clamp_min(1.0)


class PolicyAdapter(ABC):
    """One LeRobot policy type: where its hidden states are, and how its own loss and actions are had.

    Attributes:
        policy_type: LeRobot's name of the type.
        unread: Labels that its training loss does not read.
    """

    policy_type: str
    unread: frozenset[str] = frozenset()

    @abstractmethod
    def layers(self, policy: PreTrainedPolicy) -> list[tuple[TapPoint, ...]]:
        """The places whose values are the output of layer 0, 1, …; several for a layer split by camera."""

    @abstractmethod
    def run(self, policy: PreTrainedPolicy, batch: Batch, trace: Trace) -> None:
        """Run the policy on the observations of a preprocessed batch as its inference does, but with grad."""

    @abstractmethod
    def actions(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Tensor:
        """The policy's whole action chunk in normalised units, [batch, chunk, action_dim]."""

    def tokens(self, policy: PreTrainedPolicy, path: str, values: Sequence[Tensor], batch: Batch) -> Tensor:
        """Bring what was captured at `path` into the form [batch, tokens, dim]."""
        return as_tokens(values[0], batch_first=True)

    def layout(self, path: str, hidden: Tensor, trace: Trace) -> TokenLayout:
        """The layout of what `path` gave; a plain one if that is not the sequence that was traced."""
        if trace.valid is None or trace.valid.shape != hidden.shape[:2]:
            return TokenLayout.plain(hidden)
        return TokenLayout.from_segments(trace.segments, trace.valid)

    def labels(self, policy: PreTrainedPolicy, batch: Batch, seed: int) -> Batch:
        """The teacher's answer in the form its own training loss reads it."""
        return action_labels(self.actions(policy, batch, seed))

    def sample_losses(self, policy: PreTrainedPolicy, batch: Batch, forward: Forward) -> SampleLosses | None:
        """The policy's own training loss on each sample of a labelled batch; None where the type does not tell.

        Args:
            policy: The policy.
            batch: Preprocessed, labelled.
            forward: Its `forward`, or that of a wrapper that has to see every pass.
        """
        return None

    def recomputed(self, policy: PreTrainedPolicy) -> list[nn.Module]:
        """The modules that, where the policy is set to, keep no activations in training and compute them again."""
        return []

    def example_batch(self, policy: PreTrainedPolicy) -> Batch:
        """One labelled, preprocessed sample made of zeros, with the sizes the config names."""
        return example_observation(policy) | example_labels(policy)


def flow_sample_losses(batch: Batch, forward: Forward, *, padding_counts: bool) -> SampleLosses:
    """The losses of a type whose `forward` returns them when asked.

    Args:
        batch: Preprocessed, labelled.
        forward: The policy's.
        padding_counts: Whether padded actions count in its mean, as in pi0's.
    """
    losses = forward(batch, reduction="none")[0]
    padded = None if padding_counts else batch.get(ACTION_IS_PAD)
    weights = torch.ones_like(losses) if padded is None else (~padded).sum(1)
    return SampleLosses(losses, weights)


def action_labels(actions: Tensor) -> Batch:
    """Labels of a loss on continuous actions, none of them padding."""
    return {
        ACTION: actions,
        ACTION_IS_PAD: torch.zeros(actions.shape[:2], dtype=torch.bool, device=actions.device),
    }


def base_policy(model: nn.Module) -> PreTrainedPolicy:
    """The LeRobot policy inside PEFT, DistributedDataParallel or compile wrappers, or `model` itself.

    PEFT puts its adapters into the policy in place, so they act when the inner policy is called.

    Raises:
        TapError: If there is no LeRobot policy inside.
    """
    for module in model.modules():
        if isinstance(module, PreTrainedPolicy):
            return module
    raise TapError(f"`policy` is {type(model).__name__}, expected a LeRobot policy or a wrapper around one.")


def as_tokens(value: Tensor, *, batch_first: bool) -> Tensor:
    """[batch, dim], [batch, tokens, dim] or a map [batch, dim, h, w] as [batch, tokens, dim].

    Raises:
        TapError: If the tensor has another number of dimensions.
    """
    if value.ndim == 2:
        return value[:, None]
    if value.ndim == 3:
        return value if batch_first else value.transpose(0, 1)
    if value.ndim == 4:
        return value.flatten(2).transpose(1, 2)
    raise TapError(
        f"The tapped module gives {list(value.shape)}, expected [batch, dim], [batch, tokens, dim] or a map "
        "[batch, dim, height, width]. Tap a layer whose output is a sequence."
    )


def policy_device(policy: PreTrainedPolicy) -> torch.device:
    """The device the policy's parameters are on."""
    device: torch.device = next(policy.parameters()).device
    return device


def example_observation(policy: PreTrainedPolicy, batch_size: int = 1) -> Batch:
    """Observation tensors of zeros for every input the config names."""
    config, device = policy.config, policy_device(policy)
    return {
        key: torch.zeros(batch_size, *feature.shape, device=device) for key, feature in config.input_features.items()
    }


def example_language(policy: PreTrainedPolicy) -> Batch:
    """An instruction of the longest length the config allows."""
    shape, device = (1, policy.config.tokenizer_max_length), policy_device(policy)
    return {
        OBS_LANGUAGE_TOKENS: torch.zeros(shape, dtype=torch.long, device=device),
        OBS_LANGUAGE_ATTENTION_MASK: torch.ones(shape, dtype=torch.bool, device=device),
    }


def example_labels(policy: PreTrainedPolicy) -> Batch:
    """An action chunk of zeros."""
    config = policy.config
    shape = (1, len(config.action_delta_indices), config.action_feature.shape[0])
    return action_labels(torch.zeros(shape, device=policy_device(policy)))


def seeded_normal(shape: Sequence[int], seed: int, device: torch.device) -> Tensor:
    """Standard normal noise that is the same on every device and touches no global random state."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(device)
