# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from lerobot_craft.anchors import _fingerprint as module
from lerobot_craft.anchors import canonical_json, fingerprint
from lerobot_craft.errors import CraftError


def test_it_does_not_depend_on_the_order_of_names_or_on_memory_layout() -> None:
    a, b = torch.randn(4, 5), torch.randn(3)
    assert fingerprint({"a": a, "b": b}) == fingerprint({"b": b, "a": a})
    assert fingerprint({"a": a.t()}) == fingerprint({"a": a.t().contiguous()})
    assert fingerprint({"a": a}, {"x": 1, "y": [2]}) == fingerprint({"a": a}, {"y": (2,), "x": 1})


def test_everything_else_changes_it() -> None:
    a = torch.arange(12.0)
    nudged = a.clone()
    nudged[7] = torch.nextafter(nudged[7], torch.tensor(100.0))
    variants = [
        fingerprint({"a": a}),
        fingerprint({"b": a}),
        fingerprint({"a": nudged}),
        fingerprint({"a": a.double()}),
        fingerprint({"a": a.bfloat16()}),
        fingerprint({"a": a.view(3, 4)}),
        fingerprint({"a": a, "b": a}),
        fingerprint({"a": a}, {"x": 1}),
        fingerprint({"a": a}, {"x": 1.0}),
        fingerprint({}),
    ]
    assert len(set(variants)) == len(variants)


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {
        "a": torch.randn(1000, 3).half(),
        "s": torch.tensor(3),
        "e": torch.zeros(0, 2),
        "b": torch.tensor([True]),
    }
    whole = fingerprint(tensors)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7)
    assert fingerprint(tensors) == whole


def test_what_is_not_json_is_refused() -> None:
    for value in ({1, 2}, float("nan"), object()):
        with pytest.raises(CraftError, match="not JSON"):
            canonical_json({"x": value})  # type: ignore[dict-item]
