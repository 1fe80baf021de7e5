"""`min_norm` certifies nothing where there is nothing finite, and does not overflow where there is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

NOT_FINITE: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "an overflow beside a kink": (lambda x: (x.exp() + x.abs()).sum(), torch.tensor([1000.0, 0.0])),
    "an overflow without one": (lambda x: x.exp().sum(), torch.tensor([1000.0, 0.0])),
    "nan": (lambda x: x.abs().sum() + x.sum() * torch.nan, torch.tensor([1.0, 0.0])),
    "infinity, with a gradient": (lambda x: x.abs().sum() + torch.inf, torch.tensor([1.0, 0.0])),
    "a gradient that overflows": (lambda x: (x * 60000 * 2).abs().sum(), torch.zeros(2, dtype=torch.float16)),
    "16 bits": (lambda x: (x * x).sum() + x.abs().sum(), torch.tensor([300.0, 0.0], dtype=torch.float16)),
}


@pytest.mark.parametrize("name", NOT_FINITE)
def test_where_the_program_or_its_gradient_is_not_finite_it_is_refused_with_its_line(name: str) -> None:
    f, x = NOT_FINITE[name]
    with pytest.raises(Refused, match=r"test_no_certificate\.py:\d+ is (inf|nan|not finite) here"):
        subgrad.min_norm(f)(x)


@pytest.mark.parametrize("size", [1e-310, 1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_elements_of_any_size_have_a_least_one(size: float) -> None:
    x = torch.zeros(2, dtype=torch.float64)
    inside = subgrad.min_norm(lambda x: (size * x).abs().sum() + size * x[0] / 2)(x)
    outside = subgrad.min_norm(lambda x: (size * x).abs().sum() + 4 * size * x[0])(x)
    assert (inside.norm, inside.convex, outside.convex) == (0.0, True, True)
    assert outside.norm == pytest.approx(3 * size, rel=1e-9)
    torch.testing.assert_close(outside.element / size, torch.tensor([3.0, 0.0]).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("ratio", [1e10, 1e20, 1e100, 1e200])
def test_a_small_element_beside_a_large_one_is_not_0(ratio: float) -> None:
    found = subgrad.min_norm(lambda x: torch.maximum(x, ratio * x))(torch.zeros((), dtype=torch.float64))
    assert (float(found.element), found.norm, found.convex) == (1.0, 1.0, True)


@pytest.mark.parametrize("size", [1.0, 1e300])
def test_what_is_not_convex_is_not_called_so_at_any_size(size: float) -> None:
    found = subgrad.min_norm(lambda x: -(size * x).abs().sum())(torch.zeros(2, dtype=torch.float64))
    assert not found.convex


def test_leaves_without_entries_are_no_obstacle() -> None:
    nothing, two = torch.zeros(0), torch.zeros(2)
    assert subgrad.min_norm(lambda x: x.abs().sum())(nothing).norm == 0
    found = subgrad.min_norm(lambda tree: tree[0].sum().abs() + (tree[1] - 1).abs().sum())((nothing, two + 1))
    assert found.norm == 0
    assert [each.shape for each in found.element] == [(0,), (2,)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_have_a_least_element(dtype: torch.dtype) -> None:
    found = subgrad.min_norm(lambda x: (600 * x).abs().sum() + 900 * x[0])(torch.zeros(2, dtype=dtype))
    assert found.convex
    torch.testing.assert_close(found.element, torch.tensor([300.0, 0.0], dtype=dtype), atol=2.0, rtol=0)
