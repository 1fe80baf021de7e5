"""Programs that jump where no operator of theirs tells: by Python numbers, or by gradients taken inside of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]


def slope_of(f: Function) -> Function:
    return lambda x: torch.func.grad(lambda y: f(y).sum())(x).sum()


def huber(y: Tensor) -> Tensor:
    return F.huber_loss(y, torch.zeros_like(y), reduction="sum")


INNER: dict[str, tuple[Function, float]] = {
    "relu": (slope_of(torch.relu), 0.0),
    "relu, and more": (lambda x: slope_of(torch.relu)(x) + x.sum(), 0.0),
    "relu by jacfwd": (lambda x: torch.func.jacfwd(torch.relu)(x).sum() + x.sum(), 0.0),
    "relu by jacrev": (lambda x: torch.func.jacrev(torch.relu)(x).sum(), 0.0),
    "relu by vjp": (lambda x: torch.func.vjp(torch.relu, x)[1](torch.ones_like(x))[0].sum(), 0.0),
    "hardtanh": (slope_of(F.hardtanh), 1.0),
    "leaky_relu": (slope_of(F.leaky_relu), 0.0),
    "abs": (slope_of(torch.abs), 0.0),
    "huber, twice": (slope_of(lambda y: torch.func.grad(huber)(y)), 1.0),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", INNER)
def test_a_gradient_inside_that_jumps_is_refused(name: str, dtype: torch.dtype) -> None:
    f, at = INNER[name]
    for entries in (1, 2):
        for seed in range(3):
            with pytest.raises(Refused):
                subgrad.grad(f, seed=seed)(torch.full((entries,), at, dtype=dtype))


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "relu by jacrev"])
def test_so_is_its_derivative_towards_the_other_side(name: str) -> None:
    with pytest.raises(Refused):
        subgrad.jvp(INNER[name][0], (torch.zeros(2),), (torch.ones(2),))


def test_a_gradient_inside_that_does_not_jump_is_differentiated() -> None:
    f: Function = lambda x: slope_of(lambda y: torch.relu(y) ** 2 / 2)(x)  # noqa: E731
    for seed in range(3):
        found = subgrad.element(f, seed=seed)(torch.zeros(2))
        assert torch.equal(found.gradient, (found.direction > 0).float())


NUMBERS: dict[str, Function] = {
    "float": lambda x: x if float(x.detach()) < 2 else 2 * x,
    "int": lambda x: x * int(x),
    "int, added": lambda x: x + int(x),
    "item": lambda x: x if x.item() < 2 else 2 * x,
    "tolist": lambda x: x if x.tolist() < 2 else 2 * x,  # type: ignore[operator]
    "a kink besides": lambda x: (x - 2).abs() + (x if x.item() < 2 else 2 * x),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_python_numbers_are_asked_on_both_sides(name: str, dtype: torch.dtype) -> None:
    for seed in range(3):
        with pytest.raises(Refused):
            subgrad.grad(NUMBERS[name], seed=seed)(torch.tensor(2.0, dtype=dtype))
    with pytest.raises(Refused):
        subgrad.jvp(NUMBERS[name], (torch.tensor(2.0, dtype=dtype),), (torch.tensor(-1.0, dtype=dtype),))


def test_numbers_that_are_only_shown_are_fine() -> None:
    shown: list[float] = []

    def f(x: Tensor) -> Tensor:
        shown.append(x.item())
        return x**3 + x.abs()

    assert subgrad.grad(f)(torch.tensor(2.0)).item() == 13
    assert shown


def test_a_derivative_that_is_0_everywhere_can_be_written_into() -> None:
    for dtype in (torch.float64, torch.float32):
        found = subgrad.grad(slope_of(torch.abs))(torch.tensor([3.0, 1.0], dtype=dtype))
        assert found.add_(1).tolist() == [1.0, 1.0]


def jump(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1 + x, 0.0).sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_neither_a_factor_nor_a_constant_hides_a_jump(dtype: torch.dtype) -> None:
    zero, one = torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype)
    programs: list[Function] = [
        *(lambda x, factor=factor: factor * jump(x) for factor in (1.0, 1e-4, 1e-8)),
        *(lambda x, more=more: more + jump(x) for more in (100.0, 1e4)),
    ]
    for f in programs:
        with pytest.raises(Refused):
            subgrad.jvp(f, (zero,), (one,))
        assert subgrad.jvp(f, (zero,), (-one,))[1].item() == 0


def residual(matrix: Tensor) -> Tensor:
    """What the first singular vector leaves, squared: the squares of the other singular values."""
    first = torch.linalg.svd(matrix)[2][0]
    return ((matrix - torch.outer(matrix @ first, first)) ** 2).sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_vectors_of_repeated_values_may_be_used_where_the_basis_does_not_matter(dtype: torch.dtype) -> None:
    matrix = torch.eye(3, dtype=dtype)
    others: Function = lambda x: (torch.linalg.svdvals(x)[1:] ** 2).sum()  # noqa: E731
    for seed in range(2):
        found = subgrad.grad(residual, seed=seed)(matrix)
        torch.testing.assert_close(found, subgrad.grad(others, seed=seed)(matrix), rtol=1e-5, atol=1e-5)
    with pytest.raises(Refused):
        subgrad.grad(lambda x: torch.linalg.svd(x)[2][0][0] ** 2)(matrix)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_an_entry_is_not_dead_where_values_follow_it(dtype: torch.dtype) -> None:
    programs: list[Function] = [
        lambda x: torch.nan_to_num(x * x / x).sum(),
        lambda x: torch.nan_to_num(x * x / x).sum() + 0 * x.abs().sum(),
        lambda x: torch.where((x * x / x).isnan(), 0.0, x * x / x).sum(),
    ]
    for f in programs:
        found = subgrad.element(f)(torch.zeros(2, dtype=dtype))
        torch.testing.assert_close(found.gradient, torch.ones(2, dtype=dtype))
        torch.testing.assert_close(subgrad.grad(f)(torch.zeros(2, dtype=dtype)), torch.ones(2, dtype=dtype))
    with pytest.raises(Refused):
        subgrad.element(lambda x: torch.nan_to_num(x.log(), neginf=-3.0).clamp(-3).sum())(torch.zeros(1, dtype=dtype))


def root(x: Tensor) -> Tensor:
    """x sqrt(x) on the right of 0, and 0 on the left, with a root that never sees 0."""
    safe = torch.where(x > 0, x, 1.0)
    return torch.where(x > 0, safe.sqrt() * x, 0.0).sum()


def logarithm(x: Tensor) -> Tensor:
    safe = torch.where(x > 0, x, 1.0)
    return torch.where(x > 0, safe.log() * x**2, 0.0).sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_branch_that_is_steep_may_be_flat_as_a_whole(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1.0, 2.0], dtype=dtype)
    for seed in range(2):
        for f, slopes in ((root, [0.0, 1.5, 1.5 * 2**0.5]), (logarithm, [0.0, 1.0, 4 * 0.6931471805599453 + 2])):
            expected = torch.tensor(slopes, dtype=dtype)
            torch.testing.assert_close(subgrad.grad(f, seed=seed)(x), expected, rtol=1e-3, atol=1e-3)
        with pytest.raises(Refused):
            subgrad.grad(lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0).sum(), seed=seed)(x)
