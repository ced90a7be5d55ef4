# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest

from lerobot_craft.anchors import AnchorBatches, AnchorCache
from lerobot_craft.retention import ActionRetention, CombinedRetention, HiddenRetention


@pytest.fixture
def cache(regressor: Any, build_small: Any, tmp_path: Path) -> AnchorCache:
    return build_small(
        tmp_path / "both",
        lambda frames: {
            "teacher_action": regressor.act(frames),
            "teacher_hidden": regressor.features(frames)[:, None, None],
        },
        ("action", "hidden"),
        layers=(0,),
        pooling="vision_mean_text_last",
    )


def make(kind: str, policy: Any, cache: AnchorCache, **settings: Any) -> Any:
    """Return a term whose loss differs from batch to batch."""
    if kind == "combined":
        parts = {name: make(name, policy, cache, **settings) for name in ("hidden", "action")}
        return CombinedRetention(parts, relative=False)
    batches = AnchorBatches(cache, 8, prefetch=settings.pop("prefetch", 0))
    if kind == "action":
        return ActionRetention(lambda batch, seed: policy.loss(batch, seed) + 1e-3 * seed % 7, batches, **settings)
    return HiddenRetention(
        lambda frames: 1.1 * policy.features(frames)[:, None, None], batches, loss="mse", relative=False, **settings
    )


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", ["action", "hidden", "combined"])
def test_looking_ahead_changes_no_loss_and_no_saved_position(
    kind: str, prefetch: int, regressor: Any, cache: AnchorCache
) -> None:
    plain = make(kind, regressor, cache)
    ahead = make(kind, regressor, cache, prefetch=prefetch)
    expected, states = [], []
    for _ in range(12):
        states.append(plain.state_dict())
        expected.append(plain().item())
    assert len(set(expected)) > 3
    for step in range(12):
        if step % 3 != 1:
            ahead.look_ahead()
            ahead.look_ahead()
        assert ahead.state_dict() == states[step]
        assert ahead().item() == expected[step]


def test_a_resumed_term_takes_again_what_was_only_prepared(regressor: Any, cache: AnchorCache) -> None:
    term = make("action", regressor, cache)
    term()
    term.look_ahead()
    resumed = make("action", regressor, cache)
    resumed.look_ahead()
    resumed.load_state_dict(term.state_dict())
    assert resumed().item() == term().item()


def test_what_goes_wrong_ahead_is_raised_when_the_anchors_are_needed(regressor: Any, cache: AnchorCache) -> None:
    broken = [False]

    def preprocess(batch: dict[str, Any]) -> dict[str, Any]:
        if broken[0]:
            raise ValueError("the preprocessor broke")
        return batch

    expected = [make("action", regressor, cache)().item()]
    term = make("action", regressor, cache, preprocess=preprocess)
    broken[0] = True
    before = term.state_dict()
    term.look_ahead()
    assert term.state_dict() == before
    with pytest.raises(ValueError, match="broke"):
        term()
    assert term.state_dict() == before
    broken[0] = False
    assert term().item() == expected[0]


def test_the_preprocessor_sees_every_batch_once(regressor: Any, cache: AnchorCache) -> None:
    seen: list[Any] = []

    def preprocess(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(batch["observation.state"])
        return batch

    term = make("hidden", regressor, cache, preprocess=preprocess)
    for _ in range(4):
        term.look_ahead()
        term()
    assert len(seen) == 4
    assert len({float(state.sum()) for state in seen}) == 4
