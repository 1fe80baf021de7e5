"""What is looked at is exactly what ties, jumps or is asked for: neither more of the program nor less."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]
DISTINCT = torch.tensor([1.0, 1.25, 1.75], dtype=torch.float64)

SELECTIONS: dict[str, Function] = {
    "max": torch.max,
    "amin": torch.amin,
    "aminmax": lambda x: torch.stack(torch.aminmax(x)),
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
    found = subgrad.grad(lambda x: torch.where(torch.signbit(sign * x * x), -x, 2 * x).sum())(torch.zeros(2))
    assert found.tolist() == ([2.0, 2.0] if sign > 0 else [-1.0, -1.0])


def test_nothing_that_the_program_holds_is_written_into_on_a_branch_cut() -> None:
    x = torch.tensor([-1.0, -2.0], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:  # 0 * x is -0.0, below the cut, and tanh keeps its result for backward
        return torch.sqrt(torch.tanh(torch.complex(x, 0 * x))).imag.sum()

    wanted = torch.func.grad(lambda x: -(-torch.tanh(x)).sqrt().sum())(x)
    torch.testing.assert_close(subgrad.grad(f)(x), wanted)


@pytest.mark.parametrize("by_keyword", [False, True])
def test_the_outer_edges_of_bins_are_edges_however_they_are_given(by_keyword: bool) -> None:
    def f(x: Tensor) -> Tensor:
        edges = x.new_tensor([0.0, 0.6, 1.0])
        counts = torch.histogram(x, bins=edges) if by_keyword else torch.histogram(x, edges)
        return counts.hist[0] + x.sum()

    with pytest.raises(Refused, match="histogram"):
        subgrad.grad(f)(torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax"])
def test_an_index_may_be_shorter_than_what_it_scatters_into(reduce: str) -> None:
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return (x[:3].scatter_reduce(0, torch.tensor([2, 2]), x[3:], reduce) * weights).sum() + x.abs().sum()

    x = torch.tensor([1.0, 2.0, 0.0, 3.0, -1.0], dtype=torch.float64)
    found = subgrad.element(f)(x)
    assert found.kinks
    step = 2.0**-20
    quotient = (f(x + 2 * step * found.direction) - f(x + step * found.direction)) / step
    torch.testing.assert_close((found.gradient * found.direction).sum(), quotient, atol=1e-4, rtol=0)
