"""Functions with derivatives of their own: held against values, or taken at their word with `trust_custom=True`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad
from subgrad.clarke import Refused


class StraightThrough(torch.autograd.Function):
    """Rounds, and says that it does not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:  # type: ignore[override]
        return cotangent


class Spike(torch.autograd.Function):
    """A step with the slope of a smooth one, as spiking networks are trained; with forward mode."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return (x > 0).to(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return cotangent / (1 + x.abs()) ** 2

    @staticmethod
    def jvp(ctx: Any, moved: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return moved / (1 + x.abs()) ** 2


def kinked(x: Tensor) -> Tensor:
    """The identity, in two pieces."""
    return F.relu(x) - F.relu(-x)


DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
WEIGHTS = (1.0, -2.0, 0.5)


@DTYPES
@pytest.mark.parametrize(("function", "slopes"), [(StraightThrough, (1, 1, 1)), (Spike, (1, 1 / 1.3**2, 1 / 4))])
def test_derivatives_that_are_not_of_values_are_refused_or_taken_at_their_word(
    function: type[torch.autograd.Function], slopes: tuple[float, ...], dtype: torch.dtype
) -> None:
    x, w = torch.tensor([0.0, 0.3, -1.0], dtype=dtype), torch.tensor(WEIGHTS, dtype=dtype)

    def program(x: Tensor) -> Tensor:
        return (function.apply(x) * w).sum() + (kinked(x) * w**2).sum()

    with pytest.raises(Refused):
        subgrad.grad(program)(x)
    found = subgrad.element(program, trust_custom=True)(x)
    expected = w * torch.tensor(slopes, dtype=dtype) + w**2
    torch.testing.assert_close(found.gradient, expected, rtol=1e-5, atol=1e-6)
    assert found.extrapolated
    assert found.kinks >= 2


@DTYPES
def test_without_kinks_they_have_torchs_gradient(dtype: torch.dtype) -> None:
    x, w = torch.tensor([0.2, 0.3, -1.0], dtype=dtype), torch.tensor(WEIGHTS, dtype=dtype)

    def program(x: Tensor) -> Tensor:
        return (StraightThrough.apply(x) * w * x).sum()

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(program(leaf), leaf)
    assert torch.equal(subgrad.grad(program, trust_custom=True)(x), expected)
    with pytest.raises(Refused):
        subgrad.grad(program)(x)


def test_what_was_trusted_once_is_not_trusted_by_the_next() -> None:
    head = nn.Linear(3, 2)
    nn.init.zeros_(head.bias)

    def loss() -> Tensor:
        return (StraightThrough.apply(head(torch.ones(3))) * head.bias.exp()).sum()

    subgrad.backward(loss, head.parameters(), trust_custom=True)
    assert head.weight.grad is not None
    trusted = head.weight.grad.clone()
    head.weight.grad = None
    loss().backward()
    assert torch.equal(trusted, head.weight.grad)
    with pytest.raises(Refused):
        subgrad.backward(loss, head.parameters())
