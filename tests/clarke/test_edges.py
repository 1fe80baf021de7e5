"""Programs that are defined on one side only, and say so by raising: differentiated on this side, and nothing dies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]


def raises(x: Tensor) -> Tensor:
    if (x < 0).any():
        raise ValueError("negative")
    return x.abs().sum() + x.sum()


def asserts(x: Tensor) -> Tensor:
    assert bool((x >= 0).all())
    return (3 * x + x * x).sum()


def asserts_a_number(x: Tensor) -> Tensor:
    assert x.min().item() >= 0
    return (F.relu(x) - F.relu(-x)).sum() + (x * x).sum()


def asserts_for_torch(x: Tensor) -> Tensor:
    torch._assert((x >= 0).all(), "negative")
    return x.abs().sum() + (x * x).sum()


def cross_entropy(x: Tensor) -> Tensor:
    return F.binary_cross_entropy(x, torch.tensor([0.0, 1.0]).to(x), reduction="sum") + x.abs().sum()


def uniform(x: Tensor) -> Tensor:  # which asks whether x is in range unless something was compiled before
    return -torch.distributions.Uniform(0.0, 1.0, validate_args=True).log_prob(x).sum() + x.abs().sum()


PROGRAMS: dict[Function, list[float]] = {  # at (0, 1)
    raises: [2, 2],
    asserts: [3, 5],
    asserts_a_number: [1, 3],
    asserts_for_torch: [1, 3],
    cross_entropy: [2, 0],  # torch itself has 0 and 0 for the cross entropy, whose slopes are 1 and -1
    uniform: [1, 1],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_gradient_at_an_edge_is_that_on_the_side_where_there_are_values(
    program: Function, dtype: torch.dtype, seed: int
) -> None:
    x, wanted = torch.tensor([0.0, 1.0], dtype=dtype), torch.tensor(PROGRAMS[program], dtype=dtype)
    gradient = subgrad.grad(program, seed=seed)
    for _ in range(2):
        torch.testing.assert_close(gradient(x), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(subgrad.element(program, seed=seed)(x).gradient, wanted, rtol=1e-5, atol=1e-5)


def test_derivatives_along_a_direction_are_refused_where_it_leads_out() -> None:
    x, inward = torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(subgrad.jvp(raises, (x,), (inward,))[1], torch.tensor(6.0, dtype=torch.float64))
    with pytest.raises(Refused, match=r"test_edges.py:\d+"):
        subgrad.jvp(raises, (x,), (-inward,))


def test_what_is_defined_at_one_point_only_is_refused_with_the_line_and_the_error() -> None:
    def alone(x: Tensor) -> Tensor:
        if bool((x != 0).any()):
            raise LookupError("only at 0")
        return x.abs().sum()

    with pytest.raises(Refused, match=r"test_edges.py"):
        subgrad.grad(alone)(torch.zeros(2))


def test_a_program_that_runs_once_only_is_refused_with_its_error() -> None:
    numbers = iter([1.0])
    with pytest.raises(Refused, match=r"run again, it raises RuntimeError at .*test_edges.py:\d+"):
        subgrad.grad(lambda x: next(numbers) * x.abs().sum())(torch.zeros(2))


def test_what_the_program_raises_at_the_point_itself_is_passed_on() -> None:
    with pytest.raises(ValueError, match="negative"):
        subgrad.grad(raises)(-torch.ones(2))


def small_straight_through(x: Tensor) -> Tensor:
    return x + (x.round() - x).detach()


@pytest.mark.parametrize("scale", [1e-4, 1e-5, 1e-7])
@pytest.mark.parametrize("rest", [lambda x: 0, lambda x: 1, lambda x: (F.relu(x) - F.relu(x)).sum()], ids=range(3))
def test_wrong_derivatives_of_programs_that_stand_still_are_refused_however_small(
    scale: float, rest: Callable[[Tensor], Tensor | int]
) -> None:
    with pytest.raises(Refused):
        subgrad.grad(lambda x: scale * small_straight_through(x).sum() + rest(x))(torch.tensor([0.3, 0.0]))


def test_what_rounding_leaves_of_a_gradient_of_0_is_not_refused() -> None:
    logits = torch.linspace(-3, 3, 200)
    found = subgrad.element(lambda x: x.softmax(0).sum() + 0 * x.abs().sum())(logits)
    assert float(found.gradient.abs().max()) < 1e-6
