# SPDX-License-Identifier: Apache-2.0
"""Properties that several test modules check, named."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def flat(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """Return the gradients as one float64 vector, a missing one as zeros."""
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).reshape(-1).double() for g, p in zip(gradients, like, strict=True)]
    )


def assert_orthogonal_to_retention(result: Tensor, retention: Tensor, tolerance: float = 1e-9) -> None:
    lengths = result.norm() * retention.norm()
    assert abs((result @ retention).item()) <= tolerance * max(lengths.item(), 1e-12)


def assert_lambda_in_range(value: float, maximum: float) -> None:
    assert 0.0 <= value <= maximum


def assert_same_parameters(left: nn.Module, right: nn.Module) -> None:
    """Check equality bit for bit, so that -0.0 and 0.0 differ."""
    for (name, a), (_, b) in zip(left.named_parameters(), right.named_parameters(), strict=True):
        assert torch.equal(a.detach().view(torch.int32), b.detach().view(torch.int32)), name


def assert_same_trajectory(left: Sequence[float], right: Sequence[float]) -> None:
    assert list(left) == list(right)
