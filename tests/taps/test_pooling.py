# SPDX-License-Identifier: Apache-2.0
"""Poolings against sums written out by hand."""

import pytest
import torch
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.taps import POOLINGS, Segment, TokenLayout, left_aligned, pool, record_segments

# Two samples: [image image | text text text | state | pad], second with one camera absent and a short text.
VALID = torch.tensor([[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 1, 0, 1, 0]], dtype=torch.bool)
LAYOUT = TokenLayout(VALID, ((0, 2), (2, 4)), (4, 6))


@pytest.fixture
def hidden() -> Tensor:
    hidden = torch.randn(2, 8, 3, generator=torch.Generator().manual_seed(0))
    return hidden.masked_fill(~VALID[..., None], float("nan"))


def test_mean_image_tokens_leaves_out_absent_cameras(hidden: Tensor) -> None:
    expected = torch.stack([hidden[0, :4].mean(0), hidden[1, :2].mean(0)])
    torch.testing.assert_close(pool(hidden, LAYOUT, "mean_image_tokens"), expected)


def test_mean_masked(hidden: Tensor) -> None:
    expected = torch.stack([hidden[0, :7].mean(0), hidden[1, [0, 1, 4, 6]].mean(0)])
    torch.testing.assert_close(pool(hidden, LAYOUT, "mean_masked"), expected)


def test_last_and_first_token(hidden: Tensor) -> None:
    torch.testing.assert_close(pool(hidden, LAYOUT, "last_token"), hidden[:, 6])
    torch.testing.assert_close(pool(hidden, LAYOUT, "cls_token"), hidden[:, 0])


def test_vision_mean_text_last(hidden: Tensor) -> None:
    pooled = pool(hidden, LAYOUT, "vision_mean_text_last")
    assert pooled.shape == (2, 2, 3)
    torch.testing.assert_close(pooled[:, 0], pool(hidden, LAYOUT, "mean_image_tokens"))
    torch.testing.assert_close(pooled[:, 1], torch.stack([hidden[0, 5], hidden[1, 4]]))


def test_tokens_do_not_depend_on_padding(hidden: Tensor) -> None:
    tokens, mask = left_aligned(hidden, LAYOUT)
    assert tokens.shape == (2, 7, 3)
    assert mask.sum(1).tolist() == LAYOUT.lengths.tolist() == [7, 4]
    torch.testing.assert_close(tokens[1, :4], hidden[1, [0, 1, 4, 6]])
    assert tokens[1, 4:].eq(0).all()
    alone = TokenLayout(VALID[1:], LAYOUT.image_spans, LAYOUT.text_span)
    torch.testing.assert_close(pool(hidden[1:], alone, "tokens")[0], tokens[1, :4])


def test_no_gradient_reaches_padding(hidden: Tensor) -> None:
    for pooling in POOLINGS:
        leaf = hidden.detach().clone().requires_grad_()
        pool(leaf, LAYOUT, pooling).sum().backward()  # type: ignore[arg-type]
        assert leaf.grad is not None
        assert leaf.grad[~VALID].eq(0).all(), pooling
        assert leaf.grad.isfinite().all(), pooling


def test_half_precision_is_pooled_in_float32() -> None:
    hidden = torch.full((1, 4096, 1), 0.1, dtype=torch.bfloat16)
    pooled = pool(hidden, TokenLayout.plain(hidden), "mean_masked")
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled[0, 0], hidden[0, 0, 0].float())


@pytest.mark.parametrize(
    ("pooling", "layout", "message"),
    [
        ("mean", LAYOUT, "`pooling` is 'mean', expected one of mean_image_tokens"),
        ("mean_image_tokens", TokenLayout(VALID), "needs image tokens"),
        ("vision_mean_text_last", TokenLayout(VALID, ((0, 2),)), "reads no text"),
        ("mean_image_tokens", TokenLayout(VALID, ((2, 4),)), "no camera present"),
        ("vision_mean_text_last", TokenLayout(VALID, ((0, 2),), (2, 4)), "empty instruction"),
        ("mean_masked", TokenLayout(torch.zeros_like(VALID)), "all padding"),
        ("mean_masked", TokenLayout(VALID[:, :5]), r"\[2, 8, 3\].*\[2, 5\]"),
    ],
)
def test_what_a_layout_lacks_is_named(hidden: Tensor, pooling: str, layout: TokenLayout, message: str) -> None:
    with pytest.raises(TapError, match=message):
        pool(hidden, layout, pooling)  # type: ignore[arg-type]


@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "tokens"])
def test_in_a_training_step_nothing_is_read_from_the_device(pooling: str) -> None:
    """Reading a tensor of the device `meta` fails; on a GPU it would make the host wait."""
    layout = TokenLayout(VALID.to("meta"), LAYOUT.image_spans, LAYOUT.text_span)
    hidden = torch.zeros(2, 8, 3, device="meta")
    assert pool(hidden, layout, pooling).device.type == "meta"  # type: ignore[arg-type]
    with torch.no_grad(), pytest.raises(RuntimeError, match="meta"):
        pool(hidden, layout, pooling)  # type: ignore[arg-type]


def test_segments_are_recorded_in_call_order() -> None:
    embed, project, conv = nn.Embedding(5, 4), nn.Linear(3, 4), nn.Conv2d(3, 4, 1)
    with record_segments([("text", embed), ("state", project), ("image", conv)]) as segments:
        embed(torch.tensor([0, 1]))
        conv(torch.zeros(2, 3, 2, 5))
        embed(torch.zeros(2, 6, dtype=torch.long))
        project(torch.zeros(2, 3))
        project(torch.zeros(2, 7, 3))
    assert segments == [("text", 2), ("image", 10), ("text", 6), ("state", 1), ("state", 7)]
    layout = TokenLayout.from_segments(segments, torch.ones(2, 30, dtype=torch.bool))
    assert layout.image_spans == ((2, 12),)
    assert layout.text_span == (12, 18)
    with pytest.raises(TapError, match="made 26 tokens"):
        TokenLayout.from_segments(segments, torch.ones(2, 25, dtype=torch.bool))
    assert all(not m._forward_hooks for m in (embed, project, conv))
    assert Segment("image", 2).length == 2
