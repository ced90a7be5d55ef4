# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from lerobot_craft.caching import CacheSettings
from lerobot_craft.caching._settings import read_prompts
from lerobot_craft.errors import UsageError

NEEDED = {"policy_path": "teacher", "repo_id": "data", "output_dir": Path("cache")}


@pytest.mark.parametrize(
    ("given", "kinds", "layers"),
    [
        ({}, ("hidden", "action"), (-2, -1)),
        ({"layers_to_save": (-3,)}, ("hidden",), (-3,)),
        ({"hidden_layer": -2, "pooling": "mean_image_tokens"}, ("feature",), (-2,)),
        ({"tap": "a.b", "pooling": "mean_masked"}, ("feature",), (-2,)),
        ({"tap": "a.b", "pooling": "tokens"}, ("hidden",), (-2, -1)),
        ({"kinds": ("action", "replay")}, ("action", "replay"), (-2, -1)),
        ({"kinds": ("feature",)}, ("feature",), (-2,)),
    ],
)
def test_what_is_kept_follows_from_what_is_named(
    given: dict[str, object], kinds: tuple[str, ...], layers: tuple[int, ...]
) -> None:
    settings = CacheSettings(**NEEDED, **given)
    assert settings.chosen_kinds == kinds
    assert settings.layers == layers


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        CacheSettings(
            **NEEDED,
            num_anchors=0,
            dtype="float64",
            selection="best",
            kinds=("hidden", "logits"),
            tap="a.b",
            layers_to_save=(-1,),
            top_k=4,
            prompts_file=tmp_path / "none.txt",
        )
    for part in ("num_anchors=0", "dtype=float64", "selection=best", "logits", "`--tap`", "top_k=4", "none.txt"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("push it\n\npull it \n", ["push it", "pull it"]), ('["a", "b"]', ["a", "b"])]
)
def test_prompts_are_lines_or_a_json_list(tmp_path: Path, text: str, expected: list[str]) -> None:
    file = tmp_path / "prompts"
    file.write_text(text)
    assert read_prompts(file) == expected


@pytest.mark.parametrize("text", ["", "\n \n", "[1, 2]", "[broken"])
def test_prompts_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prompts"
    file.write_text(text)
    with pytest.raises(UsageError, match="prompts_file"):
        read_prompts(file)
