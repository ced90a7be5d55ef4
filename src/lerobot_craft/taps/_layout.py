# SPDX-License-Identifier: Apache-2.0
"""Which positions of a token sequence are image, text or padding, as the model itself put them there.

Holds no constant of any model: lengths are read from the tensors of one forward.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from lerobot_craft.errors import TapError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.utils.hooks import RemovableHandle


class Segment(NamedTuple):
    """A run of tokens the model made in one call.

    Attributes:
        kind: `image`, `text`, `state` or any other name.
        length: Number of tokens.
    """

    kind: str
    length: int


@dataclass(frozen=True)
class TokenLayout:
    """What each position of a sequence holds.

    Attributes:
        valid: True where a token is real and not padding, [batch, tokens].
        image_spans: Half-open position ranges of image tokens, one per camera image.
        text_span: Half-open position range of the instruction, padding included; None without text.
    """

    valid: Tensor
    image_spans: tuple[tuple[int, int], ...] = ()
    text_span: tuple[int, int] | None = None

    @classmethod
    def plain(cls, hidden: Tensor) -> TokenLayout:
        """A layout that knows nothing but the size: every token of `hidden` [batch, tokens, dim] is valid."""
        return cls(torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device))

    @classmethod
    def from_segments(cls, segments: Sequence[Segment], valid: Tensor) -> TokenLayout:
        """Lay recorded segments end to end; positions after the last one are padding added by the model.

        Args:
            segments: In the order in which the model concatenates them. The last `text` is the instruction.
            valid: True where a token is real, [batch, tokens].

        Raises:
            TapError: If the segments are longer than the sequence.
        """
        total = sum(segment.length for segment in segments)
        if total > valid.shape[1]:
            raise TapError(
                f"The model made {total} tokens ({', '.join(f'{s.kind} {s.length}' for s in segments)}) "
                f"for a sequence of {valid.shape[1]}; its layout is not the one this tap knows."
            )
        images: list[tuple[int, int]] = []
        text: tuple[int, int] | None = None
        start = 0
        for kind, length in segments:
            if kind == "image":
                images.append((start, start + length))
            elif kind == "text":
                text = (start, start + length)
            start += length
        return cls(valid, tuple(images), text)

    @property
    def image(self) -> Tensor:
        """True on image tokens of cameras that are present, [batch, tokens]."""
        return self._inside(self.image_spans) & self.valid

    @property
    def text(self) -> Tensor:
        """True on instruction tokens that are not padding, [batch, tokens]."""
        return self._inside(() if self.text_span is None else (self.text_span,)) & self.valid

    @property
    def lengths(self) -> Tensor:
        """Number of valid tokens of each sample, [batch]."""
        return self.valid.sum(dim=1)

    def _inside(self, spans: Sequence[tuple[int, int]]) -> Tensor:
        inside = torch.zeros_like(self.valid)
        for start, stop in spans:
            inside[:, start:stop] = True
        return inside


@contextmanager
def record_segments(modules: Sequence[tuple[str, nn.Module]]) -> Iterator[list[Segment]]:
    """Record how many tokens each call of the given modules makes, in the order of the calls.

    Args:
        modules: Pairs of a kind and the module whose output are tokens of that kind: [.., tokens, dim],
            [batch, dim] for a single token when the module is a linear layer, or a map [batch, dim, h, w].
    """
    segments: list[Segment] = []

    def hook_for(kind: str) -> _LengthHook:
        return _LengthHook(kind, segments)

    handles: list[RemovableHandle] = [module.register_forward_hook(hook_for(kind)) for kind, module in modules]
    try:
        yield segments
    finally:
        for handle in handles:
            handle.remove()


class _LengthHook:
    """Appends the token count of one module call."""

    def __init__(self, kind: str, segments: list[Segment]) -> None:
        self.kind = kind
        self.segments = segments

    def __call__(self, module: nn.Module, args: tuple[object, ...], output: Tensor) -> None:
        if output.ndim == 4:
            length = output.shape[2] * output.shape[3]
        elif output.ndim == 2 and isinstance(args[0], Tensor) and args[0].ndim == 2:
            length = 1
        else:
            length = output.shape[-2]
        self.segments.append(Segment(self.kind, length))
