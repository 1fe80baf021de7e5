"""What values say sharply is not overruled: programs that do not move, and small parts of a derivative."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad


def itself(x: Tensor) -> Tensor:
    """The identity, as a gradient whose own derivative torch has as 0 at 0."""
    return torch.func.grad(lambda v: ((F.relu(v) ** 2 + F.relu(-v) ** 2) / 2).sum())(x)


def flat(x: Tensor) -> Tensor:
    """x - tanh(x) of a product, which moves by its third power."""
    product = x.prod()[None]
    return (itself(product).tanh() - product).sum()


def small_part(x: Tensor) -> Tensor:
    """Of the derivative in the last entry only a hundredth depends on the kink."""
    return x.exp().sum() + 0.01 * itself(x).sum()


@pytest.mark.parametrize("direction", [(1.0, -2.0, 0.0), (0.0, 1.0, 1.0), (-1.0, 2.0, 2.0)])
@pytest.mark.parametrize("program", [flat, small_part])
def test_derivatives_are_what_values_do(program: Callable[[Tensor], Tensor], direction: tuple[float, ...]) -> None:
    x, v = torch.tensor([0.5, -0.5, 0.0]).double(), torch.tensor(direction).double()
    step = 2.0**-20
    quotient = (program(x + step * v) - program(x)) / step
    _, found = subgrad.jvp(program, (x,), (v,))
    torch.testing.assert_close(found, quotient, rtol=0, atol=1e-5)
    gradient = subgrad.grad(program)(x)
    torch.testing.assert_close(torch.dot(gradient, v), quotient, rtol=0, atol=1e-5)


def cancelling(spread: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Terms of size 1 that cancel in the value, which says nothing then of how rounding blurs it."""

    def program(x: Tensor) -> Tensor:
        s = spread(torch.maximum(x, torch.zeros_like(x))).std()
        return 2 * x.clamp(min=0).sum() + (s - 1).abs().pow(1.5) - (2 * s - 1).abs().pow(1.5)

    return program


@pytest.mark.parametrize("seed", [4, 103, 124, 178, 180, 191, 304])
def test_rounding_of_terms_that_cancel_confirms_no_slope(seed: int) -> None:
    x = torch.tensor([-1.0, 0.0, 0.0, -1.0]).double()
    found = subgrad.element(cancelling(itself), seed=seed)(x)
    assert found.direction is not None
    plain, step = cancelling(lambda y: y), 2.0**-24
    quotient = (plain(x + step * found.direction) - plain(x)) / step
    assert found.slope == pytest.approx(quotient.item(), rel=1e-4)
    assert float(torch.dot(found.gradient, found.direction)) == pytest.approx(quotient.item(), rel=1e-4)
