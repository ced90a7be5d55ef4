# SPDX-License-Identifier: Apache-2.0
import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lerobot_craft.anchors import AnchorBatches
from lerobot_craft.errors import CraftError
from lerobot_craft.retention import HiddenLoss, HiddenRetention, hidden_loss

LOSSES: tuple[HiddenLoss, ...] = ("mse", "cosine", "l1")
SHAPES = [(5, 8), (5, 2, 3, 8), (1, 1)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_features_give_nothing_and_others_something(loss: HiddenLoss, shape: tuple[int, ...]) -> None:
    target = torch.randn(shape)
    assert hidden_loss(target.clone(), target, loss).item() == pytest.approx(0, abs=1e-6)
    student = (-target).requires_grad_()
    value = hidden_loss(student, target, loss)
    assert value > 0
    value.backward()
    assert student.grad is not None
    assert loss == "cosine" or bool((student.grad != 0).any())


@given(
    st.integers(0, 10_000),
    st.floats(1e-3, 1e3),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)
@settings(deadline=None, max_examples=60)
def test_cosine_lies_between_0_and_2_whatever_the_size(seed: int, size: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    student, target = (torch.randn(4, 6, generator=generator).mul(size).to(dtype) for _ in range(2))
    value = hidden_loss(student, target, "cosine")
    assert 0 <= value <= 2 + 1e-6
    expected = 1 - torch.nn.functional.cosine_similarity(student.float(), target.float(), dim=-1).mean()
    torch.testing.assert_close(value, expected, atol=1e-4, rtol=1e-4)
    assert hidden_loss(-target, target, "cosine").item() == pytest.approx(2, abs=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_it_is_computed_in_float32(loss: HiddenLoss, dtype: torch.dtype) -> None:
    student, target = (torch.randn(3, 2, 2, 64).mul(100).to(dtype) for _ in range(2))
    value = hidden_loss(student, target, loss)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, hidden_loss(student.float(), target.float(), loss))  # no overflow at 100²·64


@pytest.mark.parametrize("loss", LOSSES)
def test_masked_tokens_do_not_count(loss: HiddenLoss) -> None:
    student, target = torch.randn(4, 2, 6, 8), torch.randn(4, 2, 6, 8)
    mask = torch.arange(6).expand(4, 6) < torch.tensor([[6], [1], [3], [2]])
    dirty = student.masked_fill(~mask[:, None, :, None], 1e3)
    value = hidden_loss(dirty, target, loss, mask=mask)
    kept = mask[:, None, :].expand(4, 2, 6)
    torch.testing.assert_close(value, hidden_loss(student[kept], target[kept], loss))


def test_layers_count_alike_whatever_their_size() -> None:
    sizes = torch.tensor([1.0, 1000.0])
    target = torch.randn(9, 2, 1, 32) * sizes[:, None, None]
    student = target + 0.1 * torch.randn(9, 2, 1, 32) * sizes[:, None, None]
    scale = sizes.square()[:, None]
    value = hidden_loss(student, target, "mse", scale=scale)
    each = [hidden_loss(student[:, i], target[:, i], "mse", scale=scale[i]) for i in range(2)]
    torch.testing.assert_close(value, torch.stack(each).mean())
    assert value.item() == pytest.approx(0.01, rel=0.2)


def test_shapes_and_names_are_checked() -> None:
    with pytest.raises(CraftError, match=r"student features got shape \(2, 3\), expected \(2, 4\)"):
        hidden_loss(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(CraftError, match=r"`loss` got 'mae', expected one of mse, cosine, l1"):
        hidden_loss(torch.zeros(2, 3), torch.zeros(2, 3), "mae")  # type: ignore[arg-type]


@pytest.fixture
def cache(regressor: Any, build_small: Any, tmp_path: Path) -> Any:
    def label(frames: dict[str, Any]) -> dict[str, Tensor]:
        return {"target_features": regressor.features(frames)}

    return build_small(tmp_path, label, ("feature",))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_teacher_scores_nothing_and_drift_grows_with_noise(loss: HiddenLoss, regressor: Any, cache: Any) -> None:
    drifts = []
    for noise in (0.0, 0.03, 0.1, 0.3):
        student = copy.deepcopy(regressor)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(1)
            for parameter in student.parameters():
                parameter += noise * torch.randn_like(parameter)
        drifts.append(HiddenRetention(student.features, AnchorBatches(cache, 40), loss=loss)().item())
    assert drifts[0] < 1e-3  # float16 rounding
    assert drifts == sorted(drifts)


def test_relative_1_is_a_student_that_ignores_what_it_sees(regressor: Any, cache: Any) -> None:
    mean = cache.targets(range(40))["target_features"].float().mean(0)
    for loss in ("mse", "l1"):
        term = HiddenRetention(lambda frames: mean.expand(40, -1), AnchorBatches(cache, 40), loss=loss)
        assert term().item() == pytest.approx(1, rel=1e-4)
        raw = HiddenRetention(lambda frames: mean.expand(40, -1), AnchorBatches(cache, 40), loss=loss, relative=False)
        floor, scale = raw.reference()
        assert (raw().item() - floor) / scale == pytest.approx(1, rel=1e-4)


def test_metrics_state_and_preprocessing(regressor: Any, cache: Any) -> None:
    def preprocess(frames: dict[str, Any]) -> dict[str, Any]:
        assert "target_features" not in frames
        return {"observation.state": frames["observation.state"]}

    def make() -> HiddenRetention:
        return HiddenRetention(regressor.features, AnchorBatches(cache, 7), preprocess=preprocess, device="cpu")

    term = make()
    loss = term()
    assert loss.requires_grad
    assert set(term.metrics) == {"retention_loss", "student_feature_norm", "target_feature_norm"}
    assert not any(value.requires_grad for value in term.metrics.values())
    torch.testing.assert_close(
        term.metrics["student_feature_norm"], term.metrics["target_feature_norm"], rtol=1e-3, atol=0
    )
    again = make()
    again.load_state_dict(term.state_dict())
    assert [again().item() for _ in range(9)] == [term().item() for _ in range(9)]


def test_all_tokens_with_a_mask(build_small: Any, tmp_path: Path) -> None:
    weights = torch.randn(6, 2 * 5 * 4)

    def features(frames: dict[str, Any]) -> Tensor:
        return (frames["observation.state"] @ weights).tanh().unflatten(1, (2, 5, 4))

    def label(frames: dict[str, Any]) -> dict[str, Tensor]:
        mask = torch.arange(5).expand(len(frames["task"]), 5) < 3
        return {"teacher_hidden": features(frames), "teacher_hidden_mask": mask}

    cache = build_small(tmp_path, label, ("hidden",), pooling="tokens", dtype="float32")
    assert cache.statistics("teacher_hidden").variance.shape == (2,)

    def elsewhere(frames: dict[str, Any]) -> Tensor:
        return features(frames) + torch.tensor([0.0, 0.0, 0.0, 9.0, 9.0])[:, None]

    assert HiddenRetention(elsewhere, AnchorBatches(cache, 16))().item() < 1e-6
    assert HiddenRetention(lambda f: features(f) + 1, AnchorBatches(cache, 16))().item() > 0.1
    # A batch of short instructions has fewer tokens than the cache, which pads to its longest one.
    assert HiddenRetention(lambda f: features(f)[:, :, :3], AnchorBatches(cache, 16))().item() < 1e-6
    with pytest.raises(CraftError, match="student features got shape"):
        HiddenRetention(lambda f: features(f)[:, :, :2], AnchorBatches(cache, 16))()


def test_a_cache_without_hidden_targets_is_refused(regressor: Any, build_small: Any, tmp_path: Path) -> None:
    cache = build_small(tmp_path, lambda frames: {"teacher_action": regressor.act(frames)}, ("action",))
    with pytest.raises(CraftError, match="got a cache of action, expected hidden or feature"):
        HiddenRetention(regressor.features, AnchorBatches(cache))
