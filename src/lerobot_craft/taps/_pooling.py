# SPDX-License-Identifier: Apache-2.0
"""Turn hidden states [batch, tokens, dim] into the vectors that are retained. Everything in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from lerobot_craft.errors import TapError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lerobot_craft.taps._layout import TokenLayout

Pooling = Literal["mean_image_tokens", "mean_masked", "last_token", "cls_token", "tokens", "vision_mean_text_last"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def pool(hidden: Tensor, layout: TokenLayout, pooling: Pooling) -> Tensor:
    """Pool one layer's hidden states.

    | pooling | result | what it takes |
    |---|---|---|
    | `mean_image_tokens` | [batch, dim] | mean over the tokens of the cameras that are present |
    | `mean_masked` | [batch, dim] | mean over all tokens that are not padding |
    | `last_token` | [batch, dim] | the last token that is not padding |
    | `cls_token` | [batch, dim] | the first token that is not padding: ACT's latent, a VLA's first patch |
    | `vision_mean_text_last` | [batch, 2, dim] | image mean, and the last instruction token |
    | `tokens` | [batch, tokens, dim] | every token that is not padding, moved left; zeros behind |

    Args:
        hidden: Hidden states, [batch, tokens, dim], of any float dtype.
        layout: What the positions hold.
        pooling: One of the names above.

    Returns:
        The pooled states in float32.

    Raises:
        TapError: If the layout lacks what the pooling needs, or the sizes disagree.
    """
    if pooling not in _POOLERS:
        raise TapError(f"`pooling` is {pooling!r}, expected one of {', '.join(POOLINGS)}.")
    if hidden.ndim != 3 or hidden.shape[:2] != layout.valid.shape:
        raise TapError(
            f"`hidden` is {list(hidden.shape)}, expected [batch, tokens, dim] with "
            f"[batch, tokens] = {list(layout.valid.shape)} as in `layout`."
        )
    _require_in_each(layout.valid, "`layout` has a sample whose tokens are all padding; there is nothing to pool.")
    return _POOLERS[pooling](hidden.float(), layout)


def _require_in_each(mask: Tensor, message: str) -> None:
    """Raise if a sample has no such token.

    Not in a training step on a GPU, where the answer would make the host wait for the device: its anchors were pooled
    before, when the teacher's features were cached, and were asked then.
    """
    if mask.device.type != "cpu" and torch.is_grad_enabled():
        return
    if not bool(mask.any(dim=1).all()):
        raise TapError(message)


def left_aligned(hidden: Tensor, layout: TokenLayout) -> tuple[Tensor, Tensor]:
    """Move the valid tokens of each sample to the left, in their order, and zero the rest.

    Padding depends on the other samples of a batch, so two runs of the same sample agree only in this form.

    Returns:
        The tokens [batch, longest, dim] in the dtype of `hidden`, and the mask [batch, longest].
    """
    order = torch.argsort((~layout.valid).to(torch.int8), dim=1, stable=True)
    longest = int(layout.lengths.max())
    kept = order[:, :longest]
    tokens = torch.take_along_dim(hidden, kept[..., None], dim=1)
    mask = torch.take_along_dim(layout.valid, kept, dim=1)
    return tokens.masked_fill(~mask[..., None], 0), mask


def _masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    # masked_fill, not a product: padding may hold NaN, and NaN * 0 is NaN.
    total = hidden.masked_fill(~mask[..., None], 0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True)


def _last_of(hidden: Tensor, mask: Tensor) -> Tensor:
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, positions, -1).amax(dim=1)
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), last]


def _image_mean(hidden: Tensor, layout: TokenLayout) -> Tensor:
    if not layout.image_spans:
        raise TapError(
            "This pooling needs image tokens, but the tapped module has none (no camera, or a module whose "
            "tokens are not the policy's). Use `pooling=mean_masked`."
        )
    mask = layout.image
    _require_in_each(mask, "A sample has no camera present, so its image tokens have no mean. Drop it.")
    return _masked_mean(hidden, mask)


def _text_last(hidden: Tensor, layout: TokenLayout) -> Tensor:
    if layout.text_span is None:
        raise TapError(
            "`pooling=vision_mean_text_last` needs instruction tokens, but this policy reads no text here. "
            "Use `pooling=mean_image_tokens`, `mean_masked` or `tokens`."
        )
    mask = layout.text
    _require_in_each(mask, "A sample has an empty instruction, so it has no last text token. Give every frame a task.")
    return _last_of(hidden, mask)


def _cls(hidden: Tensor, layout: TokenLayout) -> Tensor:
    first = layout.valid.to(torch.int8).argmax(dim=1)
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), first]


_POOLERS: dict[str, Callable[[Tensor, TokenLayout], Tensor]] = {
    "mean_image_tokens": _image_mean,
    "mean_masked": lambda hidden, layout: _masked_mean(hidden, layout.valid),
    "last_token": lambda hidden, layout: _last_of(hidden, layout.valid),
    "cls_token": _cls,
    "tokens": lambda hidden, layout: left_aligned(hidden, layout)[0],
    "vision_mean_text_last": lambda hidden, layout: torch.stack(
        [_image_mean(hidden, layout), _text_last(hidden, layout)], dim=1
    ),
}
