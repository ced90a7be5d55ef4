# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests._asserts import assert_orthogonal_to_retention, flat
from torch import Tensor, nn

from lerobot_craft.surgery import MergeMode, conflicts, gradient_products, merge_, weigh


@dataclass
class Case:
    """Parameters with a task gradient in `.grad`, and retention gradients; either may be missing."""

    parameters: list[nn.Parameter]
    retention: list[Tensor | None]

    @property
    def task(self) -> list[Tensor | None]:
        return [p.grad for p in self.parameters]


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Case:
    shapes = draw(st.lists(st.sampled_from([(), (3,), (2, 4), (1, 1, 5)]), min_size=1, max_size=5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    # Mixed with minus the task gradient, so that conflicts are as common as agreements.
    opposition = draw(st.floats(-2.0, 2.0))
    scale = 10.0 ** draw(st.integers(-6, 6))
    parameters, retention = [], []
    for shape in shapes:
        parameter = nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
        g, r = torch.randn((2, *shape), generator=generator, dtype=dtype)
        r = scale * (r - opposition * g)
        present = draw(st.sampled_from(["both", "both", "task", "retention", "neither"]))
        parameter.grad = g if present in ("both", "task") else None
        parameters.append(parameter)
        retention.append(r if present in ("both", "retention") else None)
    if all(p.grad is None for p in parameters) and all(r is None for r in retention):
        parameters[0].grad = torch.ones_like(parameters[0])
    return Case(parameters, retention)


def textbook(
    g: Tensor, r: Tensor, multiplier: float, mode: MergeMode, threshold: float, max_ratio: float | None
) -> tuple[Tensor, Tensor]:
    """Return projected and merged gradient by the formulas of requirements G2 and G3, on whole vectors."""
    lengths = g.norm() * r.norm()
    cosine = g @ r / lengths if lengths > 0 else torch.zeros(())
    projected = g - (g @ r) / (r @ r) * r if cosine < threshold else g
    weight = {"weighted": multiplier, "equal": 0.5, "task_priority": min(multiplier, 1.0)}[mode]
    if max_ratio is not None and weight * r.norm() > max_ratio * g.norm():
        weight = max_ratio * g.norm() / r.norm()
    return projected, (0.5 if mode == "equal" else 1.0) * projected + weight * r


@given(
    case=cases(),
    multiplier=st.floats(0.0, 10.0),
    mode=st.sampled_from(MergeMode),
    threshold=st.sampled_from([-0.1, 0.0, -0.5]),
    max_ratio=st.sampled_from([None, 0.5, 2.0]),
)
def test_merge_is_the_textbook_formula(
    case: Case, multiplier: float, mode: MergeMode, threshold: float, max_ratio: float | None
) -> None:
    g, r = flat(case.task, case.parameters), flat(case.retention, case.parameters)
    _, expected = textbook(g, r, multiplier, mode, threshold, max_ratio)
    products = gradient_products(case.task, case.retention)
    surgery = weigh(
        products,
        torch.tensor(multiplier, dtype=torch.float64),
        mode=mode,
        project=conflicts(products, threshold),
        max_ratio=max_ratio,
    )
    merge_(case.parameters, case.retention, surgery)
    merged = flat(case.task, case.parameters)
    assert (merged - expected).norm() <= 1e-10 * max(expected.norm().item(), g.norm().item())


@given(case=cases())
def test_projected_gradient_is_orthogonal_or_was_not_in_conflict(case: Case) -> None:
    g, r = flat(case.task, case.parameters), flat(case.retention, case.parameters)
    products = gradient_products(case.task, case.retention)
    conflict = conflicts(products, -0.1)
    zero = torch.zeros((), dtype=torch.float64)
    merge_(case.parameters, case.retention, weigh(products, zero, mode=MergeMode.WEIGHTED, project=conflict))
    result = flat(case.task, case.parameters)
    if conflict:
        # Rounding leaves a component along r that is small against g, not against what is left of it.
        assert_orthogonal_to_retention(result, r, tolerance=1e-9 * max(1.0, (g.norm() / result.norm()).item()))
    else:
        assert torch.equal(result, g)


@given(case=cases())
def test_conflict_is_judged_by_the_cosine_whatever_the_size_of_the_gradients(case: Case) -> None:
    before = gradient_products(case.task, case.retention)
    after = gradient_products(
        [None if g is None else 1e-3 * g for g in case.task], [None if r is None else 1e3 * r for r in case.retention]
    )
    torch.testing.assert_close(after.cosine, before.cosine, rtol=1e-9, atol=1e-12)


def test_a_gradient_missing_on_one_side_is_zero_on_that_side() -> None:
    only_task, only_retention = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    only_task.grad = torch.tensor([1.0, 2.0])
    retention: list[Tensor | None] = [None, torch.tensor([3.0, 4.0])]
    products = gradient_products([only_task.grad, None], retention)
    assert products.dot == 0
    assert products.cosine == 0
    surgery = weigh(products, torch.tensor(2.0), mode=MergeMode.WEIGHTED, project=conflicts(products, -0.1))
    merge_([only_task, only_retention], retention, surgery)
    assert only_task.grad.tolist() == [1.0, 2.0]
    assert only_retention.grad is not None
    assert only_retention.grad.tolist() == [6.0, 8.0]


def test_a_vanishing_retention_gradient_changes_nothing() -> None:
    """At step 0 the student is the teacher, and r = 0 must not divide anything."""
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([1.0, -2.0, 3.0])
    products = gradient_products([parameter.grad], [torch.zeros(3)])
    always = torch.tensor(True)
    merge_(
        [parameter],
        [torch.zeros(3)],
        weigh(products, torch.tensor(5.0), mode=MergeMode.WEIGHTED, project=always, max_ratio=1.0),
    )
    assert parameter.grad.tolist() == [1.0, -2.0, 3.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_merged_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.zeros(1000, dtype=dtype))
    g, r = torch.randn(2, 1000).to(dtype)
    parameter.grad = g.clone()
    weight = torch.tensor(1.019)
    products = gradient_products([g], [r])
    merge_([parameter], [r], weigh(products, weight, mode=MergeMode.WEIGHTED, project=torch.tensor(False)))
    assert torch.equal(parameter.grad, (g.float() + 1.019 * r.float()).to(dtype))


def test_low_precision_products_do_not_overflow() -> None:
    g = torch.full((4096,), 200.0, dtype=torch.float16)
    products = gradient_products([g], [g])
    assert products.dot.item() == pytest.approx(4096 * 200.0**2)
    assert products.task_norm.item() == pytest.approx(64 * 200.0)


def test_memory_shared_between_two_retention_gradients_is_not_written_to() -> None:
    """Autograd returns the same tensor for both sides of a sum."""
    left, right = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    retention: list[Tensor | None] = list(torch.autograd.grad(((left + right) ** 2).sum(), [left, right]))
    left.grad = torch.ones(2)
    products = gradient_products([left.grad, None], retention)
    merge_(
        [left, right],
        retention,
        weigh(products, torch.tensor(2.0), mode=MergeMode.WEIGHTED, project=torch.tensor(False)),
    )
    assert right.grad is not None
    assert left.grad.tolist() == [9.0, 9.0]
    assert right.grad.tolist() == [8.0, 8.0]


def test_consumed_gradients_are_released() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    retention: list[Tensor | None] = [torch.ones(2)]
    products = gradient_products([None], retention)
    merge_(
        [parameter], retention, weigh(products, torch.tensor(1.0), mode=MergeMode.WEIGHTED, project=torch.tensor(False))
    )
    assert retention == [None]


@pytest.mark.parametrize("g_sparse", [True, False])
@pytest.mark.parametrize("r_sparse", [True, False])
def test_sparse_gradients(*, g_sparse: bool, r_sparse: bool) -> None:
    g, r = torch.zeros(6, 3), torch.zeros(6, 3)
    g[[1, 4]], r[[1, 2]] = torch.randn(2, 3), torch.randn(2, 3)
    parameter = nn.Parameter(torch.zeros(6, 3))
    parameter.grad = g.to_sparse(1) if g_sparse else g.clone()
    retention: list[Tensor | None] = [r.to_sparse(1) if r_sparse else r.clone()]
    products = gradient_products([parameter.grad], retention)
    torch.testing.assert_close(products.dot, (g * r).sum())
    torch.testing.assert_close(products.retention_norm, r.norm())
    merge_(
        [parameter], retention, weigh(products, torch.tensor(0.5), mode=MergeMode.WEIGHTED, project=torch.tensor(False))
    )
    assert parameter.grad.is_sparse == (g_sparse and r_sparse)
    torch.testing.assert_close(parameter.grad.to_dense(), g + 0.5 * r)


def test_non_contiguous_gradients() -> None:
    parameter = nn.Parameter(torch.zeros(4, 3).t())
    parameter.grad = torch.randn(4, 3).t()
    expected = parameter.grad.clone()
    r = torch.randn(3, 4)
    products = gradient_products([parameter.grad], [r])
    torch.testing.assert_close(products.dot, (expected * r).sum())
    merge_([parameter], [r], weigh(products, torch.tensor(1.0), mode=MergeMode.WEIGHTED, project=torch.tensor(False)))
    torch.testing.assert_close(parameter.grad, expected + r)


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="`task` has 1 gradients and `retention` 2"):
        gradient_products([torch.ones(1)], [torch.ones(1), None])
    with pytest.raises(ValueError, match="no gradient at all"):
        gradient_products([None], [None])


def test_two_row_pcgrad_of_torchjd_is_our_projection_both_ways() -> None:
    """PCGrad sums g projected off r and r projected off g; with two rows its random order does not matter."""
    from torchjd.aggregation import PCGrad

    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randn(2, 30, generator=generator, dtype=torch.float64)
        ours = projected(rows[0], rows[1]) + projected(rows[1], rows[0])
        torch.testing.assert_close(ours, PCGrad()(rows), rtol=1e-12, atol=1e-12)


def projected(g: Tensor, r: Tensor) -> Tensor:
    parameter = nn.Parameter(torch.zeros_like(g))
    parameter.grad = g.clone()
    products = gradient_products([g], [r])
    zero = torch.zeros((), dtype=g.dtype)
    surgery = weigh(products, zero, mode=MergeMode.WEIGHTED, project=conflicts(products, 0.0))
    merge_([parameter], [r], surgery)
    return parameter.grad
