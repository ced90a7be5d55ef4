# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lerobot_craft.anchors import TargetStatistics, build_cache, random_access
from lerobot_craft.anchors._statistics import measure_statistics


def in_chunks(values: Tensor, mask: Tensor | None, size: int) -> Any:
    return lambda: (
        (values[i : i + size], None if mask is None else mask[i : i + size]) for i in range(0, len(values), size)
    )


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5)])
def test_spread_is_the_textbooks_whatever_the_pieces(shape: tuple[int, ...], size: int) -> None:
    values = torch.randn(40, *shape) * 3 + 100
    measured = measure_statistics(in_chunks(values, None, size), per_layer=False)
    exact = values.double()
    torch.testing.assert_close(measured.variance, exact.var(0, unbiased=False).mean(-1))
    torch.testing.assert_close(measured.absolute_deviation, (exact - exact.mean(0)).abs().mean(0).mean(-1))
    torch.testing.assert_close(measured.mean_square, exact.square().mean(0).mean(-1))


def test_masked_tokens_do_not_count() -> None:
    values = torch.randn(30, 2, 4, 6)
    mask = torch.rand(30, 4) < 0.6
    mask[0] = True
    dirty = values.masked_fill(~mask[:, None, :, None], 1e4)
    measured = measure_statistics(in_chunks(dirty, mask, 8), per_layer=True)
    squares, count = torch.zeros(2, dtype=torch.float64), 0
    for token in range(4):
        kept = values[mask[:, token], :, token].double()
        squares += (kept - kept.mean(0)).square().mean(-1).sum(0)
        count += len(kept)
    torch.testing.assert_close(measured.variance, squares / count)


def test_they_are_in_the_manifest_as_measured_on_what_is_stored(synthetic: Any, tmp_path: Path) -> None:
    cache = synthetic.build(tmp_path)
    stored = cache.targets(range(len(cache)))["teacher_hidden"].double()
    torch.testing.assert_close(cache.statistics("teacher_hidden").variance, stored.var(0, unbiased=False).mean(-1))


def test_a_constant_vector_is_measured_against_its_size(synthetic: Any, tmp_path: Path) -> None:
    def label(frames: dict[str, Any]) -> dict[str, Tensor]:
        return {"target_features": torch.full((len(frames["task"]), 4), 3.0)}

    plan = synthetic.plan(kinds=("feature",))
    cache = build_cache(tmp_path, plan, random_access(synthetic.frame), label)
    statistics = cache.statistics("target_features")
    assert statistics.variance == 0
    assert statistics.scale("mse").item() == pytest.approx(9e-4)
    assert statistics.scale("l1").item() == pytest.approx(0.03)
    assert statistics.scale("cosine").item() == 1


def test_json_keeps_every_bit() -> None:
    statistics = TargetStatistics(*(torch.rand(2, 3, dtype=torch.float64) for _ in range(3)))
    again = TargetStatistics.from_json(statistics.to_json())
    assert torch.equal(again.variance, statistics.variance)
