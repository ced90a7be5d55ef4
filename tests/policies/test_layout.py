# SPDX-License-Identifier: Apache-2.0
"""Token ranges against what the models really did: change one input and see which positions move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from lerobot_craft.policies import make_tap
from lerobot_craft.taps import TapPoint, TokenLayout, capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Loaded

CAMERAS = ("observation.images.front", "observation.images.wrist")
LANGUAGE = "model.paligemma_with_expert.paligemma.model.language_model.layers.0.input_layernorm"
# Where the sequence enters the first layer, before any token has seen another.
ENTRANCE = {
    "act": "model.encoder.layers.0",
    "smolvla": "model.vlm_with_expert.vlm.model.text_model.layers.0.input_layernorm",
    "pi0": LANGUAGE,
    "pi05": LANGUAGE,
    "pi0_fast": LANGUAGE,
}


def sequence(loaded: Loaded, policy_type: str, batch: dict[str, Any]) -> tuple[Tensor, TokenLayout]:
    """The tokens that enter the first layer, and the layout the tap reports."""
    tap = make_tap(loaded.policy, layers=(-1,))
    entrance = [TapPoint(ENTRANCE[policy_type], "input")]
    with torch.no_grad(), capture(loaded.policy, entrance, stop=False) as seen:
        _, layout = tap.hidden(batch)
    tokens = seen.values[0]
    return (tokens.transpose(0, 1) if policy_type == "act" else tokens), layout


def moved(before: Tensor, after: Tensor) -> Tensor:
    return (before - after).abs().amax(dim=-1) > 1e-6


def span_mask(layout: TokenLayout, span: tuple[int, int]) -> Tensor:
    mask = torch.zeros_like(layout.valid)
    mask[:, span[0] : span[1]] = True
    return mask


@pytest.mark.parametrize("policy_type", ENTRANCE)
def test_image_spans_are_where_each_camera_enters(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    before, layout = sequence(loaded, policy_type, loaded.batch)
    assert len(layout.image_spans) == len(CAMERAS)
    assert before.shape[:2] == layout.valid.shape
    for camera, span in zip(CAMERAS, layout.image_spans, strict=True):
        # New pixels everywhere: every cell of this camera, and no other token, must change.
        noise = torch.rand(loaded.batch[camera].shape, generator=torch.Generator().manual_seed(0))
        after, _ = sequence(loaded, policy_type, {**loaded.batch, camera: noise})
        assert torch.equal(moved(before, after), span_mask(layout, span)), camera


@pytest.mark.parametrize("policy_type", ["smolvla", "pi0", "pi05", "pi0_fast"])
def test_text_span_is_where_each_word_enters(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    before, layout = sequence(loaded, policy_type, loaded.batch)
    assert layout.text_span is not None
    start, stop = layout.text_span
    key = "observation.language.tokens"
    assert stop - start == loaded.batch[key].shape[1]
    for word in (0, 2):
        tokens = loaded.batch[key].clone()
        tokens[:, word] = (tokens[:, word] + 1) % 100 + 4
        after, _ = sequence(loaded, policy_type, {**loaded.batch, key: tokens})
        assert torch.equal(moved(before, after), span_mask(layout, (start + word, start + word + 1)))
    expected = loaded.batch["observation.language.attention_mask"]
    assert torch.equal(layout.text[:, start:stop], expected)
    assert layout.text.sum() == expected.sum()
    assert not expected.all(), "the batch must hold padding, or the mask is not tested"


@pytest.mark.parametrize("policy_type", ["act", "smolvla"])
def test_the_state_token_is_neither_image_nor_text(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    before, layout = sequence(loaded, policy_type, loaded.batch)
    state = loaded.batch["observation.state"] + 1
    after, _ = sequence(loaded, policy_type, {**loaded.batch, "observation.state": state})
    changed = moved(before, after)
    assert changed.sum(dim=1).tolist() == [1] * 6
    assert not (changed & (layout.image | layout.text)).any()
    assert (changed & layout.valid).any(dim=1).all()


def test_smolvla_special_image_tokens_and_fixed_prefix(load: Callable[[str], Loaded]) -> None:
    loaded = load("smolvla")
    policy = loaded.copy()
    policy.model.add_image_special_tokens = True
    policy.model.prefix_length = 32
    with torch.no_grad():
        hidden, layout = make_tap(policy, layers=(-1,)).hidden(loaded.batch)
    # Two opening tokens and one closing token around each image, padding up to the prefix length.
    assert layout.image_spans == ((2, 6), (9, 13))
    assert layout.text_span == (14, 19)
    assert hidden[0].shape[1] == 32
    assert not layout.valid[:, 20:].any()


@pytest.mark.parametrize("policy_type", ["pi0", "pi05", "pi0_fast"])
def test_an_absent_camera_is_padding(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    batch = {key: value for key, value in loaded.batch.items() if key != CAMERAS[1]}
    tap = make_tap(loaded.policy, layers=(-1,))
    with torch.no_grad():
        _, layout = tap.hidden(batch)
    assert len(layout.image_spans) == 2
    assert layout.image.sum(dim=1).tolist() == [layout.image_spans[0][1]] * 6


def test_diffusion_tokens_are_steps_by_cameras(load: Callable[[str], Loaded]) -> None:
    loaded = load("diffusion")
    tap = make_tap(loaded.policy, layers=(0,))
    with torch.no_grad():
        before, layout = tap.hidden(loaded.batch)
        assert layout.image_spans == ((0, 1), (1, 2), (2, 3), (3, 4))
        for camera_index, camera in enumerate(CAMERAS):
            for step in range(2):
                images = loaded.batch[camera].clone()
                images[:, step] = torch.rand(images[:, step].shape, generator=torch.Generator().manual_seed(0))
                after, _ = tap.hidden({**loaded.batch, camera: images})
                expected = span_mask(layout, (2 * step + camera_index, 2 * step + camera_index + 1))
                assert torch.equal(moved(before[0], after[0]), expected)
