# SPDX-License-Identifier: Apache-2.0
"""Taps on tiny real policies of all six types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from lerobot_craft.errors import TapError
from lerobot_craft.policies import Tap, freeze_behind_tap, make_tap
from lerobot_craft.taps import POOLINGS
from lerobot_craft.testing import add_noise_

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Loaded

IMAGE_POOLINGS = [name for name in POOLINGS if name != "vision_mean_text_last"]


def relative_drift(student: Tensor, teacher: Tensor) -> float:
    return float((student - teacher).pow(2).mean() / teacher.pow(2).mean())


def poolings_of(loaded: Loaded) -> list[str]:
    return list(POOLINGS) if "observation.language.tokens" in loaded.batch else IMAGE_POOLINGS


def test_student_equal_to_teacher_has_no_drift_and_noise_makes_it_grow(loaded: Loaded) -> None:
    teacher = make_tap(loaded.policy, layers=(-2, -1))
    for pooling in poolings_of(loaded):
        with torch.no_grad():
            target = teacher.features(loaded.batch, pooling)
            drifts = []
            for scale in (0.0, 0.02, 0.1, 0.4):
                student = loaded.copy()
                add_noise_(student, scale)
                features = make_tap(student, layers=(-2, -1)).features(loaded.batch, pooling)
                drifts.append(relative_drift(features, target))
        assert drifts[0] <= 1e-10, pooling
        assert drifts == sorted(drifts), (pooling, drifts)
        assert drifts[1] > 1e-7, (pooling, drifts)


def test_shapes(loaded: Loaded) -> None:
    two, one = make_tap(loaded.policy, layers=(-2, -1)), make_tap(loaded.policy, layers=(-2,))
    with torch.no_grad():
        hidden, layout = two.hidden(loaded.batch)
        size, _, width = hidden[0].shape
        assert size == 6
        assert two.features(loaded.batch, "mean_masked").shape == (6, 2, 1, width)
        assert one.features(loaded.batch, "mean_image_tokens").shape == (6, width)
        longest = int(layout.lengths.max())
        assert two.features(loaded.batch, "tokens").shape == (6, 2, longest, width)
        tokens, mask = two.tokens(loaded.batch)
        torch.testing.assert_close(tokens, two.features(loaded.batch, "tokens"), rtol=0, atol=0)
        assert mask.sum(1).tolist() == layout.lengths.tolist()
        if layout.text_span is not None:
            assert two.features(loaded.batch, "vision_mean_text_last").shape == (6, 2, 2, width)
        else:
            with pytest.raises(TapError, match="no text here"):
                two.features(loaded.batch, "vision_mean_text_last")


def test_features_of_a_sample_do_not_depend_on_its_batch(loaded: Loaded) -> None:
    from lerobot_craft.testing import select

    tap = make_tap(loaded.policy, layers=(-1,))
    # Preprocessed alone, the short instruction is padded less than beside the long one.
    alone = loaded.preprocess(select(loaded.frames, torch.tensor([0])))
    with torch.no_grad():
        together, mask = tap.tokens(loaded.batch)
        single, _ = tap.tokens(alone)
    torch.testing.assert_close(single[0], together[0][:, mask[0]], rtol=1e-4, atol=1e-4)


def test_action_labels_are_not_needed(loaded: Loaded) -> None:
    observation = {key: value for key, value in loaded.batch.items() if not key.startswith("action")}
    tap = make_tap(loaded.policy, layers=(-1,))
    with torch.no_grad():
        with_labels = tap.features(loaded.batch, "mean_masked")
        torch.testing.assert_close(tap.features(observation, "mean_masked"), with_labels, rtol=0, atol=0)


def test_gradients_reach_only_what_lies_in_front(loaded: Loaded) -> None:
    student = loaded.copy()
    student.requires_grad_(True)
    tap = make_tap(student, layers=(0,))
    hidden, _ = tap.hidden(loaded.batch)
    # A random direction: a plain sum is constant behind a layer norm and would hide gradients.
    direction = torch.randn(hidden[0].shape, generator=torch.Generator().manual_seed(0))
    (hidden[0].float() * direction).sum().backward()
    reached = {name for name, p in student.named_parameters() if p.grad is not None}
    front, behind = tap.parameters_in_front(), tap.parameters_behind()
    assert reached == set(front)
    assert front
    assert behind
    assert not set(front) & set(behind)
    assert set(tap.parameters_around()) <= set(front)


def test_behind_is_where_the_loss_goes_and_the_tap_does_not(loaded: Loaded) -> None:
    from lerobot_craft.policies import policy_loss, teacher_labels

    student = loaded.copy()
    student.requires_grad_(True)
    labels = teacher_labels(student, loaded.batch, seed=0)
    policy_loss(student, {**loaded.batch, **labels}, seed=0).backward()
    used = {name for name, p in student.named_parameters() if p.grad is not None}
    tap = make_tap(student, layers=(0,))
    assert set(tap.parameters_behind()) == used - set(tap.parameters_in_front())


def test_noise_behind_the_tap_changes_actions_but_no_feature(loaded: Loaded) -> None:
    from lerobot_craft.policies import teacher_actions

    student = loaded.copy()
    tap = make_tap(student, layers=(0,))
    before, actions = tap.features(loaded.batch, "tokens"), teacher_actions(student, loaded.batch, seed=0)
    add_noise_(nn.ParameterList(tap.parameters_behind().values()), 0.5)
    torch.testing.assert_close(tap.features(loaded.batch, "tokens"), before, rtol=0, atol=0)
    assert (teacher_actions(student, loaded.batch, seed=0) - actions).abs().max() > 1e-3


def test_freezing_behind_the_tap(loaded: Loaded) -> None:
    student = loaded.copy()
    student.requires_grad_(True)
    frozen = freeze_behind_tap(make_tap(student, layers=(0,)))
    assert frozen
    # What is frozen stays counted where it stands.
    assert set(make_tap(student, layers=(0,)).parameters_behind()) == set(frozen)
    assert {name for name, p in student.named_parameters() if not p.requires_grad} == set(frozen)


def test_requires_grad_and_mode_are_put_back(loaded: Loaded) -> None:
    student = loaded.copy()
    student.train()
    next(iter(student.parameters())).requires_grad_(False)
    grads = [p.requires_grad for p in student.parameters()]
    modes = [m.training for m in student.modules()]
    tap = make_tap(student, layers=(-1,))
    tap.parameters_behind()
    tap.hidden(loaded.batch)
    assert [p.requires_grad for p in student.parameters()] == grads
    assert [m.training for m in student.modules()] == modes
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in student.modules())


AROUND: dict[str, Callable[[set[str]], bool]] = {
    # The position of the latent and state token goes to the decoder too; nothing else does.
    "act": lambda names: names == {"model.encoder_1d_feature_pos_embed.weight"},
    "diffusion": lambda names: not names,
    "smolvla": lambda names: any(".layers.0.self_attn.k_proj" in name for name in names),
    "pi0": lambda names: any(".layers.0.self_attn.k_proj" in name for name in names),
    "pi05": lambda names: any(".layers.0.self_attn.k_proj" in name for name in names),
    "pi0_fast": lambda names: any(".layers.0.mlp.up_proj" in name for name in names),
}


@pytest.mark.parametrize("policy_type", AROUND)
def test_ways_around_the_tap(load: Callable[[str], Loaded], policy_type: str) -> None:
    tap = make_tap(load(policy_type).policy, layers=(-1,))
    assert AROUND[policy_type](set(tap.parameters_around()))


LATER = {
    "act": "model.decoder",
    "diffusion": "diffusion.unet",
    "smolvla": "model.vlm_with_expert.vlm.model.text_model.layers.1.mlp",
    "pi0": "model.paligemma_with_expert.paligemma.model.language_model.layers.1.mlp",
    "pi05": "model.paligemma_with_expert.paligemma.model.language_model.layers.1.mlp",
    "pi0_fast": "model.paligemma_with_expert.paligemma.model.language_model.layers.1.mlp",
}


@pytest.mark.parametrize("policy_type", LATER)
def test_the_forward_stops_at_the_tap(load: Callable[[str], Loaded], policy_type: str) -> None:
    loaded = load(policy_type)
    called: list[str] = []
    modules = dict(loaded.policy.named_modules())

    first = make_tap(loaded.policy, layers=(0,))
    last = make_tap(loaded.policy, layers=(-1,))
    handle = modules[LATER[policy_type]].register_forward_pre_hook(lambda *_: called.append(policy_type))
    try:
        with torch.no_grad():
            first.hidden(loaded.batch)
            assert called == []
            last.hidden(loaded.batch)
    finally:
        handle.remove()
    # The watched module does run when the tap lies behind it, or the first assertion would prove nothing.
    behind_last = policy_type in ("act", "diffusion")
    assert bool(called) != behind_last


def test_description_is_json_and_tells_taps_apart(loaded: Loaded) -> None:
    tap = make_tap(loaded.policy, layers=(-2, -1))
    count = len(tap.adapter.layers(tap.policy))
    same = make_tap(loaded.policy, layers=(count - 2, count - 1))
    assert json.loads(json.dumps(tap.describe())) == tap.describe() == same.describe()
    assert make_tap(loaded.policy, layers=(-1,)).describe() != tap.describe()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected exactly one"),
        ({"layers": (-1,), "path": "model"}, "expected exactly one"),
        ({"layers": (3,)}, "names 3, but there are 3; expected -3 to 2"),
        ({"layers": (-1, 2)}, "none twice"),
        ({"layers": ()}, "at least one layer"),
        ({"path": "model.encodr.layers.2"}, r"Nearest: model\.encoder\.layers\.2"),
    ],
)
def test_wrong_arguments(load: Callable[[str], Loaded], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TapError, match=message):
        make_tap(load("act").policy, **arguments)


def test_a_stranger_is_refused() -> None:
    with pytest.raises(TapError, match="`policy` is Linear, expected a LeRobot policy"):
        make_tap(nn.Linear(1, 1), layers=(0,))


def features_by_path(loaded: Loaded, path: str) -> tuple[Tap, Tensor]:
    tap = make_tap(loaded.policy, path=path)
    with torch.no_grad():
        return tap, tap.hidden(loaded.batch)[0][0]


def test_a_path_gives_what_the_layer_gives(load: Callable[[str], Loaded]) -> None:
    loaded = load("act")
    _, hidden = features_by_path(loaded, "model.encoder.layers.1")
    with torch.no_grad():
        expected = make_tap(loaded.policy, layers=(1,)).hidden(loaded.batch)[0][0]
    torch.testing.assert_close(hidden, expected, rtol=0, atol=0)


def test_paths_inside_towers_and_unet(load: Callable[[str], Loaded]) -> None:
    _, backbone = features_by_path(load("act"), "model.backbone.layer4")
    assert backbone.shape == (6, 4, 64)
    tap, middle = features_by_path(load("diffusion"), "diffusion.unet.mid_modules.1")
    assert middle.shape == (6, 4, 64)
    assert tap.hidden(load("diffusion").batch)[1].image_spans == ()
    assert any("down_modules" in name for name in tap.parameters_in_front())
    assert any("up_modules" in name for name in tap.parameters_behind())
    _, vision = features_by_path(load("smolvla"), "model.vlm_with_expert.vlm.model.connector")
    assert vision.shape == (6, 4, 64)
    path = "model.paligemma_with_expert.paligemma.model.language_model.layers.1"
    loaded = load("pi0")
    _, layer = features_by_path(loaded, path)
    with torch.no_grad():
        torch.testing.assert_close(layer, make_tap(loaded.policy, layers=(1,)).hidden(loaded.batch)[0][0])


def test_a_path_that_inference_does_not_reach_says_so(load: Callable[[str], Loaded]) -> None:
    with pytest.raises(TapError, match=r"without reaching model\.vae_encoder"):
        features_by_path(load("act"), "model.vae_encoder.layers.0")
