# SPDX-License-Identifier: Apache-2.0
import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lerobot_craft.anchors import AnchorBatches, AnchorCache
from lerobot_craft.errors import CacheMismatchError, CraftError
from lerobot_craft.retention import (
    ActionRetention,
    CombinedRetention,
    HiddenRetention,
    ReplayRetention,
    TokenRetention,
    make_retention,
    token_cross_entropy,
    topk_divergence,
)


@pytest.fixture(params=["regressor", "flow_matcher"])
def policy(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def cache(policy: Any, build_small: Any, tmp_path: Path) -> AnchorCache:
    return build_small(
        tmp_path / "actions", lambda frames: {"teacher_action": policy.act(frames)}, ("action", "replay")
    )


def noisy(policy: Any, noise: float) -> Any:
    student = copy.deepcopy(policy)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in student.parameters():
            parameter += noise * torch.randn_like(parameter)
    return student


def drift(student: Any, teacher: Any, cache: AnchorCache, **options: Any) -> float:
    reference = ActionRetention(teacher.loss, AnchorBatches(cache, 8, **options)).reference()
    term = ActionRetention(student.loss, AnchorBatches(cache, 8, **options))
    mean = torch.stack([term().detach() for _ in range(40)]).mean().item()
    return (mean - reference.floor) / reference.scale


def test_the_teacher_drifts_by_nothing_and_a_student_by_its_noise(policy: Any, cache: AnchorCache) -> None:
    drifts = [drift(noisy(policy, noise), policy, cache) for noise in (0.0, 0.05, 0.15, 0.45)]
    assert abs(drifts[0]) < 0.03
    assert drifts == sorted(drifts)


def test_a_policy_that_ignores_the_observation_drifts_by_about_1(
    regressor: Any, build_small: Any, tmp_path: Path
) -> None:
    cache = build_small(tmp_path, lambda frames: {"teacher_action": regressor.act(frames)}, ("action",), 200)
    floor, scale = ActionRetention(regressor.loss, AnchorBatches(cache, 20)).reference()
    assert floor == pytest.approx(0, abs=1e-4)  # a deterministic loss: nothing but rounding
    others = torch.randn(200, 6, generator=torch.Generator().manual_seed(7))

    def blind(batch: dict[str, Any], seed: int) -> Tensor:
        elsewhere = batch | {"observation.state": others[seed % 100 :][:20]}
        return regressor.loss(elsewhere, seed)

    term = ActionRetention(blind, AnchorBatches(cache, 20))
    mean = torch.stack([term().detach() for _ in range(50)]).mean().item()
    assert (mean - floor) / scale == pytest.approx(1, abs=0.15)


def test_flow_matching_has_a_floor_and_a_cycle_takes_its_scatter_away(
    flow_matcher: Any, build_small: Any, tmp_path: Path
) -> None:
    cache = build_small(tmp_path, lambda frames: {"teacher_action": flow_matcher.act(frames)}, ("action",))
    fresh = ActionRetention(flow_matcher.loss, AnchorBatches(cache, 4))
    floor, scale = fresh.reference()
    assert floor > 0.01 * scale
    scatter = torch.stack([(fresh().detach() - floor) / scale for _ in range(60)]).std()
    cycled = ActionRetention(flow_matcher.loss, AnchorBatches(cache, 4, cycle=3))
    floor, scale = cycled.reference()
    paired = torch.stack([(cycled().detach() - floor) / scale for _ in range(60)])
    assert scatter > 0.01  # as large as the budget itself
    assert paired.abs().max() < 1e-6
    student = noisy(flow_matcher, 0.03)
    student_term = ActionRetention(student.loss, AnchorBatches(cache, 4, cycle=3))
    with_floors = ActionRetention(flow_matcher.loss, AnchorBatches(cache, 4, cycle=3))
    with_floors.reference()
    student_term.load_state_dict(with_floors.state_dict())
    plain = ActionRetention(student.loss, AnchorBatches(cache, 4, cycle=3))
    period = 30
    values = torch.stack([student_term().detach() for _ in range(period)])
    raw = torch.stack([plain().detach() for _ in range(period)])
    torch.testing.assert_close(values.mean(), raw.mean())  # the same mean,
    assert values.std() < 0.5 * raw.std()  # and less scatter


def test_resuming_draws_the_same_noise(flow_matcher: Any, build_small: Any, tmp_path: Path) -> None:
    cache = build_small(tmp_path, lambda frames: {"teacher_action": flow_matcher.act(frames)}, ("action",))
    term = ActionRetention(flow_matcher.loss, AnchorBatches(cache, 8))
    reference = term.reference()
    first = [term().item() for _ in range(3)]
    state = term.state_dict()
    expected = [term().item() for _ in range(12)]
    assert len(set(first + expected)) == 15  # new noise at every step
    torch.manual_seed(999)
    resumed = ActionRetention(flow_matcher.loss, AnchorBatches(cache, 8))
    resumed.load_state_dict(state)
    assert [resumed().item() for _ in range(12)] == expected
    assert resumed.reference() == reference
    other_rank = ActionRetention(flow_matcher.loss, AnchorBatches(cache, 8, rank=1, world_size=2))
    assert other_rank().item() == first[1]  # what one process draws at the same place of the order


def test_a_reference_is_measured_before_the_first_step_or_not_at_all(policy: Any, cache: AnchorCache) -> None:
    term = ActionRetention(policy.loss, AnchorBatches(cache, 8))
    term()
    with pytest.raises(CraftError, match=r"first called at anchor 8, expected before the first step"):
        term.reference()


def test_a_loss_that_ignores_the_anchors_is_refused(policy: Any, cache: AnchorCache) -> None:
    term = ActionRetention(lambda batch, seed: torch.tensor(1.0), AnchorBatches(cache, 8))
    with pytest.raises(CraftError, match="cannot retain anything"):
        term.reference()
    with pytest.raises(CraftError, match="at least 2"):
        ActionRetention(policy.loss, AnchorBatches(cache, 8, indices=[3])).reference()


def test_processes_share_one_reference(policy: Any, cache: AnchorCache) -> None:
    asked = []

    def average(value: Tensor) -> Tensor:
        asked.append(value.item())
        return value + 1

    term = ActionRetention(policy.loss, AnchorBatches(cache, 8), average=average)
    plain = ActionRetention(policy.loss, AnchorBatches(cache, 8)).reference()
    assert term.reference() == pytest.approx((plain.floor + 1, plain.scale + 1))
    assert len(asked) == 3


def test_gradients_reach_the_student(policy: Any, cache: AnchorCache) -> None:
    student = noisy(policy, 0.1)
    for term in (ActionRetention, ReplayRetention):
        gradients = torch.autograd.grad(term(student.loss, AnchorBatches(cache, 8))(), list(student.parameters()))
        assert all(bool(gradient.abs().sum() > 0) for gradient in gradients)


def test_actions_go_through_the_preprocessor_and_padding_with_them(regressor: Any, cache: AnchorCache) -> None:
    seen: list[dict[str, Any]] = []

    def preprocess(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "action": batch["action"] * 2}

    def loss(batch: dict[str, Any], seed: int) -> Tensor:
        seen.append(batch)
        return batch["action"].sum()

    for term, name in ((ActionRetention, "teacher_action"), (ReplayRetention, "action")):
        term(loss, AnchorBatches(cache, 8), preprocess=preprocess)()
        targets = cache.targets(AnchorBatches(cache, 8).indices_at(0))
        assert torch.equal(seen[-1]["action"], targets[name] * 2)
    assert not seen[0]["action_is_pad"].any()
    assert torch.equal(seen[1]["action_is_pad"], targets["action_is_pad"])


@pytest.mark.parametrize("lost", ["action", "action_is_pad"])
@pytest.mark.parametrize("how", ["dropped", "None", "halved"])
def test_a_preprocessor_that_loses_targets_is_caught(regressor: Any, cache: AnchorCache, lost: str, how: str) -> None:
    def preprocess(batch: dict[str, Any]) -> dict[str, Any]:
        changed = {"dropped": {}, "None": {lost: None}, "halved": {lost: batch[lost][:4]}}[how]
        return {key: value for key, value in batch.items() if key != lost} | changed

    with pytest.raises(CraftError, match=rf"`preprocess` got `{lost}` of shape .* expected a tensor of 8 rows"):
        ReplayRetention(regressor.loss, AnchorBatches(cache, 8), preprocess=preprocess)()


def test_a_loss_that_is_no_scalar_is_refused(cache: AnchorCache) -> None:
    with pytest.raises(CraftError, match=r"returned shape \(8,\), expected a scalar"):
        ActionRetention(lambda batch, seed: torch.zeros(8), AnchorBatches(cache, 8))()


@pytest.fixture
def token_cache(tokenizer: Any, build_small: Any, tmp_path: Path) -> AnchorCache:
    def label(frames: dict[str, Any]) -> dict[str, Tensor]:
        logits = tokenizer.logits(frames)
        values, indices = logits.topk(4)
        mask = torch.arange(5).expand(len(logits), 5) < 4
        return {
            "labels": logits.argmax(-1),
            "labels_mask": mask,
            "topk_values": values,
            "topk_indices": indices.to(torch.int32),
        }

    return build_small(tmp_path / "tokens", label, ("tokens",), dtype="float32")


def test_token_losses_equal_the_textbook() -> None:
    logits, labels = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    mask = torch.rand(3, 5) < 0.7
    labels[0, 0] = -100
    mask[0, 1] = True
    kept = mask & (labels != -100)
    expected = torch.nn.functional.cross_entropy(logits[kept], labels[kept])
    torch.testing.assert_close(token_cross_entropy(logits, labels, mask), expected)
    teacher = torch.randn(3, 5, 7)
    values, indices = teacher.topk(7)
    full = torch.nn.functional.kl_div(
        logits[kept].log_softmax(-1), teacher[kept].log_softmax(-1), log_target=True, reduction="batchmean"
    )
    torch.testing.assert_close(topk_divergence(logits, values, indices, kept), full)
    assert topk_divergence(teacher, *teacher.topk(3), kept).item() == pytest.approx(0, abs=1e-6)


def test_tokens_by_loss_by_logits_and_by_distillation(tokenizer: Any, token_cache: AnchorCache) -> None:
    def loss(batch: dict[str, Any], seed: int) -> Tensor:
        return token_cross_entropy(tokenizer.logits(batch), batch["labels"], batch["labels_mask"])

    own = TokenRetention(loss, AnchorBatches(token_cache, 8))
    logits = TokenRetention(None, AnchorBatches(token_cache, 8), logits=tokenizer.logits)
    assert own().item() == pytest.approx(logits().item())
    distilled = TokenRetention(None, AnchorBatches(token_cache, 8), logits=tokenizer.logits, distill=True)
    assert distilled().item() == pytest.approx(0, abs=1e-6)
    fresh = TokenRetention(None, AnchorBatches(token_cache, 8), logits=tokenizer.logits)
    floor, scale = fresh.reference()
    assert floor > 0  # the teacher is not certain of its own tokens,
    assert scale > 0  # but surer than of other anchors'
    student = noisy(tokenizer, 0.3)
    assert TokenRetention(None, AnchorBatches(token_cache, 8), logits=student.logits)().item() > own().item()


def test_a_preprocessor_cannot_lose_labels(tokenizer: Any, token_cache: AnchorCache) -> None:
    def preprocess(batch: dict[str, Any]) -> dict[str, Any]:
        return {"observation.state": batch["observation.state"]}

    term = TokenRetention(None, AnchorBatches(token_cache, 8), logits=tokenizer.logits, preprocess=preprocess)
    assert term().item() > 0


def test_tokens_need_one_of_loss_and_logits(tokenizer: Any, token_cache: AnchorCache) -> None:
    with pytest.raises(CraftError, match="exactly one of"):
        TokenRetention(None, AnchorBatches(token_cache, 8))


def test_combined_terms_share_a_unit(regressor: Any, build_small: Any, tmp_path: Path) -> None:
    def label(frames: dict[str, Any]) -> dict[str, Tensor]:
        return {"teacher_action": regressor.act(frames), "target_features": regressor.features(frames)}

    cache = build_small(tmp_path, label, ("feature", "action"))
    student = noisy(regressor, 0.1)

    def terms(policy: Any) -> dict[str, Any]:
        return {
            "hidden": HiddenRetention(policy.features, AnchorBatches(cache, 8)),
            "action": ActionRetention(policy.loss, AnchorBatches(cache, 8, seed=7)),
        }

    teacher = CombinedRetention(terms(regressor), {"hidden": 1.0, "action": 3.0})
    assert teacher.reference() == (0.0, 4.0)
    assert teacher().item() == pytest.approx(0, abs=1e-2)
    assert set(teacher.metrics) >= {"retention_loss", "hidden/student_feature_norm", "action/retention_loss"}
    raw = CombinedRetention(terms(student), {"hidden": 1.0, "action": 3.0}, relative=False)
    separate = terms(student)
    assert raw().item() == pytest.approx((separate["hidden"]() + 3 * separate["action"]()).item())
    state = raw.state_dict()
    expected = [raw().item() for _ in range(3)]
    again = CombinedRetention(terms(student), {"hidden": 1.0, "action": 3.0}, relative=False)
    again.load_state_dict(state)
    assert [again().item() for _ in range(3)] == expected
    with pytest.raises(CraftError, match=r"`weights` got \['x'\]"):
        CombinedRetention(terms(student), {"x": 1.0})
    with pytest.raises(CraftError, match=r"`state` got the terms \['hidden'\]"):
        again.load_state_dict({"hidden": {}})


def test_modes_are_explicit(regressor: Any, build_small: Any, tmp_path: Path) -> None:
    cache = build_small(tmp_path, lambda frames: {"teacher_action": regressor.act(frames)}, ("action", "replay"))
    batches = AnchorBatches(cache, 8)
    assert isinstance(make_retention("action", batches, policy_loss=regressor.loss), ActionRetention)
    assert isinstance(make_retention("replay", batches, policy_loss=regressor.loss), ReplayRetention)
    with pytest.raises(CacheMismatchError, match=r"(?s)'hidden' and a cache of action, replay.*lerobot-craft cache"):
        make_retention("hidden", batches, features=regressor.features)
    with pytest.raises(CacheMismatchError, match="--kinds=tokens"):
        make_retention("token_ce", batches, policy_loss=regressor.loss)
    with pytest.raises(CraftError, match="`retention_mode` got 'auto'"):
        make_retention("auto", batches)
    with pytest.raises(CraftError, match="`policy_loss` got None"):
        make_retention("action", batches)
