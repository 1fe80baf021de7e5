"""What is looked at is exactly what ties, jumps or is asked for: neither more of the program nor less."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]
DISTINCT = torch.tensor([1.0, 1.25, 1.75], dtype=torch.float64)

SELECTIONS: dict[str, Function] = {
    "max": torch.max,
    "amin": torch.amin,
    "min along a dimension": lambda x: x.view(1, 3).min(1).values,
    "topk": lambda x: x.topk(2).values,
    "kthvalue": lambda x: x.kthvalue(2).values,
    "sort": lambda x: x.sort().values,
    "cummax": lambda x: x.cummax(0).values,
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_entries_that_differ_are_no_kink(name: str) -> None:
    found = subgrad.element(lambda x: (SELECTIONS[name](x) ** 2).sum())(DISTINCT)
    assert found.kinks == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_what_ties_in_value_and_tangent_is_that_of_values_further_on(sign: int) -> None:
    found = subgrad.element(lambda x: torch.where(torch.signbit(sign * x * x), -x, 2 * x).sum())(torch.zeros(2))
    assert found.gradient.tolist() == ([2.0, 2.0] if sign > 0 else [-1.0, -1.0])
    assert not found.extrapolated


def test_nothing_that_the_program_holds_is_written_into_on_a_branch_cut() -> None:
    x = torch.tensor([-1.0, -2.0], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:  # 0 * x is -0.0, below the cut, and tanh keeps its result for backward
        return torch.sqrt(torch.tanh(torch.complex(x, 0 * x))).imag.sum()

    wanted = torch.func.grad(lambda x: -(-torch.tanh(x)).sqrt().sum())(x)
    found = subgrad.element(f)(x)
    torch.testing.assert_close(found.gradient, wanted)
    assert not found.extrapolated


@pytest.mark.parametrize("by_keyword", [False, True])
def test_the_outer_edges_of_bins_are_edges_however_they_are_given(by_keyword: bool) -> None:
    def f(x: Tensor) -> Tensor:
        edges = x.new_tensor([0.0, 0.6, 1.0])
        counts = torch.histogram(x, bins=edges) if by_keyword else torch.histogram(x, edges)
        return counts.hist[0] + x.sum()

    with pytest.raises(Refused, match=r"histogram\(\) at .* an entry is on the edge"):
        subgrad.grad(f)(torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64))


def test_every_row_of_many_axes_is_asked_for_edges() -> None:
    edges = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return torch.histogramdd(x.view(3, 2), [edges, edges]).hist[0, 0] + x.sum()

    inside = torch.tensor([0.0, 0.1, 0.2, 0.7, 1.0, 1.5], dtype=torch.float64)
    assert subgrad.grad(f)(inside).tolist() == [1.0] * 6
    inside[5] = 0.5
    with pytest.raises(Refused, match="an entry is on the edge"):
        subgrad.grad(f)(inside)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax"])
def test_an_index_may_be_shorter_than_what_it_scatters_into(reduce: str) -> None:
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return (x[:3].scatter_reduce(0, torch.tensor([2, 2]), x[3:], reduce) * weights).sum() + x.abs().sum()

    x = torch.tensor([1.0, 2.0, 0.0, 3.0, -1.0], dtype=torch.float64)
    found = subgrad.element(f)(x)
    assert found.kinks
    assert not found.extrapolated
    step = 2.0**-20
    quotient = (f(x + 2 * step * found.direction) - f(x + step * found.direction)) / step
    torch.testing.assert_close((found.gradient * found.direction).sum(), quotient, atol=1e-4, rtol=0)


def test_one_operand_that_is_0_is_enough_for_a_truth_to_turn() -> None:
    for of in (torch.logical_and, torch.logical_xor):  # beside 0 the other operand is not, and is no tie
        f = lambda x, of=of: torch.where(of(x, x + 1), 2 * x, 3 * x).sum()  # noqa: E731
        step = torch.full((2,), 2.0**-20, dtype=torch.float64)
        (wanted,) = {round(float(f(each) / each.sum()), 6) for each in (step, -step)}
        assert subgrad.grad(f)(torch.zeros(2, dtype=torch.float64)).tolist() == [wanted] * 2


def test_what_is_searched_in_may_be_sorted_by_an_index() -> None:
    unsorted = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)
    sorter = unsorted.argsort()

    def f(x: Tensor) -> Tensor:  # 1 - x between 0 and 1, and 3 (x - 1) between 1 and 2
        place = torch.searchsorted(unsorted, x, sorter=sorter)
        return ((place == 1) * (1 - x) + (place == 2) * 3 * (x - 1)).sum()

    found = subgrad.element(f)(torch.ones(1, dtype=torch.float64))
    assert found.gradient.tolist() == ([3.0] if float(found.direction) > 0 else [-1.0])
    assert not found.extrapolated


@pytest.mark.parametrize(("probability", "wanted"), [(0.0, 1.0), (1.0, -1.0)])
def test_what_is_certain_has_the_slope_of_its_values(probability: float, wanted: float) -> None:
    x = torch.tensor([probability], dtype=torch.float64)
    assert subgrad.grad(lambda p: F.binary_cross_entropy(p, x))(x).tolist() == pytest.approx([wanted], rel=1e-4)


def test_matrices_and_vectors_at_which_torch_takes_another_function_are_right_or_refused() -> None:
    singular = torch.diag(torch.tensor([0.0, 2.0, 3.0], dtype=torch.float64))
    wanted = torch.diag(torch.tensor([6.0, 0.0, 0.0], dtype=torch.float64))  # the adjugate
    torch.testing.assert_close(subgrad.grad(torch.linalg.det)(singular), wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(Refused):
        subgrad.grad(lambda a: torch.linalg.pinv(a).sum())(singular)
    short = torch.full((2, 3), 1e-9, dtype=torch.float64)
    for f in (
        lambda x: F.cosine_similarity(x, torch.full_like(x, 1e-9), 1).sum(),
        lambda x: F.cosine_similarity(x, torch.ones_like(x), dim=0, eps=1e-8).sum(),
    ):
        with pytest.raises(Refused):
            subgrad.grad(f)(short)
    assert subgrad.grad(lambda x: F.cosine_similarity(x, torch.ones_like(x), 1).sum())(short + 1).isfinite().all()
