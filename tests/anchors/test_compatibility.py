# SPDX-License-Identifier: Apache-2.0
import shlex
from pathlib import Path
from typing import Any

import pytest

from lerobot_craft.anchors import AnchorCache, check_compatible
from lerobot_craft.errors import CacheMismatchError, CraftError


@pytest.fixture
def known(synthetic: Any, tmp_path: Path) -> AnchorCache:
    plan = synthetic.plan(
        teacher="sha256:aa",
        processor="sha256:bb",
        tap="vlm.layers",
        layers=(-2, -1),
        pooling="mean_masked",
        policy_path="me/teacher",
        dataset="me/old tasks",
    )
    return synthetic.build(tmp_path / "known", plan)


def test_a_cache_of_this_policy_passes(known: AnchorCache) -> None:
    expected: dict[str, Any] = {
        "teacher": "sha256:aa",
        "processor": "sha256:bb",
        "tap": "vlm.layers",
        "layers": [-2, -1],
        "pooling": "mean_masked",
    }
    for mode in ("hidden", "action", "replay", None):
        assert check_compatible(known, mode=mode, **expected) == ()


def test_every_mismatch_is_reported_at_once_with_the_command(known: AnchorCache) -> None:
    with pytest.raises(CacheMismatchError) as caught:
        check_compatible(
            known,
            mode="token_ce",
            teacher="sha256:cc",
            processor="sha256:dd",
            tap="other",
            layers=(-1,),
            pooling="last_token",
        )
    text = str(caught.value)
    assert "`retention_mode` got 'token_ce' and a cache of hidden, action, replay, expected one of tokens" in text
    for got, expected in (("sha256:aa", "sha256:cc"), ("sha256:bb", "sha256:dd"), ("vlm.layers", "other")):
        assert f"got {got} in the cache, expected {expected}" in text
    words = shlex.split(text.splitlines()[-1])
    assert words[:2] == ["lerobot-craft", "cache"]
    assert {"--policy.path=me/teacher", "--dataset.repo_id=me/old tasks", "--kinds=tokens"} <= set(words)
    assert {"--tap=other", "--layers_to_save=-1", "--pooling=last_token", "--num_anchors=23"} <= set(words)


def test_what_the_cache_does_not_say_is_returned(cache: AnchorCache) -> None:
    assert check_compatible(cache, teacher="sha256:aa", pooling="mean_masked") == ("teacher", "pooling")


def test_an_unknown_mode(cache: AnchorCache) -> None:
    with pytest.raises(CraftError, match=r"`retention_mode` got 'hiden', expected one of hidden, action"):
        check_compatible(cache, mode="hiden")
