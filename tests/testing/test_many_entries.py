"""`gradcheck` where many pieces meet, or lie so near to each other that quotients run across several of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from subgrad.testing import GradcheckError, gradcheck

ONES = torch.ones(16, dtype=torch.float64)
TIED: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": lambda x: torch.sort(x).values,
    "median": lambda x: torch.median(x[:15]),
    "max_pool": lambda x: F.max_pool2d(x.view(1, 1, 4, 4), 2, 1),
    "topk": lambda x: torch.topk(x, 3).values,
    "cummax": lambda x: torch.cummax(x, 0).values,
    "norm": lambda x: (x - 1).norm(),
}


@pytest.mark.parametrize("name", TIED)
def test_ties_of_sixteen_entries_pass(name: str) -> None:
    assert gradcheck(TIED[name], ONES)


@pytest.mark.parametrize("name", TIED)
def test_a_gradient_that_is_too_large_at_such_a_tie_is_caught(name: str) -> None:
    class Larger(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x)
            return TIED[name](x)

        @staticmethod
        def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                (found,) = torch.autograd.grad(TIED[name](x), x, grad)
            return found + 1.5 * grad.sum() * torch.equal(x, ONES)

    with pytest.raises(GradcheckError, match=r"no element of the set|is not that of the values"):
        gradcheck(Larger.apply, ONES)


def test_a_perceptron_without_biases_at_the_zero_vector_passes() -> None:
    generator = torch.Generator().manual_seed(0)
    first, last = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((12, 6), (3, 12)))
    bias, x = torch.zeros(12, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    # All units are on their kink, and with biases every choice of slopes is that of some piece.
    assert gradcheck(lambda x, w, b, v: v @ torch.relu(w @ x + b), (x, first, bias, last))


@pytest.mark.parametrize("apart", [1e-8, 2.6e-9, 1e-9, 1e-10, 1e-12])
def test_a_kink_just_beside_the_point_is_no_error(apart: float) -> None:
    x = torch.tensor([apart, 0.0], dtype=torch.float64)
    assert gradcheck(lambda x: torch.cummax(x, 0).values, x)
    assert gradcheck(torch.relu, x - 1e-9)


@pytest.mark.parametrize("apart", [1e-7, 1e-8])
def test_a_jump_just_beside_the_point_is_no_error(apart: float) -> None:
    assert gradcheck(torch.floor, torch.tensor([3 + apart, 0.5], dtype=torch.float64))
