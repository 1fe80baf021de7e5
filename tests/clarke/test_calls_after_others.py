"""A call after others finds what a first call finds: what was right at one point may be wrong at the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]


def numbers(*given: float) -> Tensor:
    return torch.tensor(given, dtype=torch.float64)


class WrongSquare(torch.autograd.Function):
    """x * x with the derivative x, which is right at 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * ctx.saved_tensors[0]


def hooked(x: Tensor) -> Tensor:
    square = x * x
    if square.requires_grad:
        square.register_hook(lambda grad: 3 * grad)
    return square.sum()


def constant(x: Tensor) -> Tensor:
    with torch.no_grad():
        found = x * 1
    return (x * found).sum()


def steps(x: Tensor) -> Tensor:
    return x.sum() + (1.0 if x[0].item() >= 0.5 else 0.0)


RIGHT_AT_0: dict[str, Function] = {
    "detach": lambda x: (x * x.detach()).sum(),
    "no_grad": constant,
    "straight-through": lambda x: (x + (x.round() - x).detach()).sum() * x.sum(),
    "a number": lambda x: (x * x.sum().item()).sum(),
    "a list": lambda x: (x * torch.tensor(x.tolist(), dtype=x.dtype)).sum(),
    "a custom function": lambda x: WrongSquare.apply(x).sum(),
    "a hook": hooked,
    "a jump": steps,
}
BESIDE: dict[str, Function] = {
    "nothing": lambda x: 0 * x.sum(),
    "a kink": lambda x: F.relu(x[1]) - F.relu(-x[1]),
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("kind", RIGHT_AT_0)
def test_what_no_rule_sees_is_held_against_values_in_every_call(kind: str, beside: str) -> None:
    gradient = subgrad.grad(lambda x: RIGHT_AT_0[kind](x) + BESIDE[beside](x))
    there = numbers(0.5, 0.0)
    for _ in range(3):
        gradient(numbers(0.0, 0.0))
        with pytest.raises(Refused):
            gradient(there)


@pytest.mark.parametrize("kind", RIGHT_AT_0)
def test_so_it_is_for_parameters(kind: str) -> None:
    weight = torch.nn.Parameter(numbers(0.0, 0.0))
    for _ in range(2):
        with torch.no_grad():
            weight.zero_()
        subgrad.backward(lambda: RIGHT_AT_0[kind](weight), [weight])
        with torch.no_grad():
            weight[0] = 0.5
        with pytest.raises(Refused):
            subgrad.backward(lambda: RIGHT_AT_0[kind](weight), [weight])


def half_square(y: Tensor) -> Tensor:
    return ((F.relu(y) ** 2 + F.relu(-y) ** 2) / 2).sum()


INNER: dict[str, Function] = {
    "grad": lambda x: torch.func.grad(half_square)(x),
    "jacrev": lambda x: torch.func.jacrev(half_square)(x),
    "vjp": lambda x: torch.func.vjp(half_square, x)[1](torch.ones((), dtype=x.dtype))[0],
    "jvp": lambda x: torch.func.jvp(half_square, (x,), (torch.ones_like(x),))[1][None],
}


@pytest.mark.parametrize("kind", INNER)
def test_kinks_inside_inner_transforms_are_seen_after_smooth_points(kind: str) -> None:
    gradient = subgrad.grad(lambda x: INNER[kind](x).sum())
    for at in (1.0, 0.0, -1.0, 0.0):
        torch.testing.assert_close(gradient(numbers(at)), numbers(1.0))


WITHOUT_RULES: dict[str, tuple[Function, Tensor]] = {
    "a branch cut": (lambda y: torch.atan2(y, -torch.ones_like(y)), torch.tensor(0.0, dtype=torch.float64)),
    "signs of a factorisation": (
        lambda a: (torch.linalg.qr(a)[0] * torch.arange(1.0, 10.0).view(3, 3)).sum() + F.relu(a).sum(),
        torch.diag(numbers(1, 1, 2)),
    ),
}


@pytest.mark.parametrize("kind", WITHOUT_RULES)
def test_what_rules_do_not_lead_through_is_asked_in_every_call_whether_it_jumps(kind: str) -> None:
    program, at = WITHOUT_RULES[kind]
    gradient = subgrad.grad(program)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        with pytest.raises(Refused):
            gradient(at)
        gradient(at + 0.1 * torch.randn(at.shape, generator=generator, dtype=at.dtype))


WEIGHTS = torch.arange(1.0, 10.0, dtype=torch.float64).view(3, 3)
DEGENERATE: dict[str, tuple[Function, Tensor]] = {  # no kink of the table, where torch's own gradient is none
    "qr": (lambda a: (torch.linalg.qr(a)[0] * WEIGHTS).sum(), torch.diag(numbers(1, 1, 2))),
    "pinv": (lambda a: (torch.linalg.pinv(a) * WEIGHTS).sum(), torch.ones(3, 3, dtype=torch.float64)),
    "pinverse": (lambda a: (a.pinverse() * WEIGHTS).sum(), torch.zeros(3, 3, dtype=torch.float64)),
    "cosine of short vectors": (
        lambda a: F.cosine_similarity(a[0] + 0.1, numbers(1.0, 2.0, 3.0), dim=0, eps=10.0),
        torch.eye(3, dtype=torch.float64),
    ),
}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_arguments_are_refused_in_every_call(kind: str) -> None:
    program, at = DEGENERATE[kind]
    gradient = subgrad.grad(program)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        with pytest.raises(Refused):
            gradient(at)
        if kind != "cosine of short vectors":
            near = at + torch.eye(3) + 0.1 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
            torch.testing.assert_close(gradient(near), torch.func.grad(program)(near))


SINGULAR = {"one row twice the other": [[1.0, 2.0], [2.0, 4.0]], "zero": [[0.0, 0.0], [0.0, 0.0]]}


@pytest.mark.parametrize("spelling", ["torch.det", "torch.linalg.det", "Tensor.det"])
@pytest.mark.parametrize("kind", SINGULAR)
def test_determinants_of_singular_matrices_have_their_adjugate(kind: str, spelling: str) -> None:
    """Of which torch's reverse mode makes 0; also in a batch, and beside others in turn."""
    det = {"torch.det": torch.det, "torch.linalg.det": torch.linalg.det, "Tensor.det": Tensor.det}[spelling]
    matrix = torch.tensor(SINGULAR[kind], dtype=torch.float64)
    (a, b), (c, d) = matrix.tolist()
    adjugate = torch.tensor([[d, -c], [-b, a]], dtype=torch.float64)
    gradient = subgrad.grad(lambda x: (det(x) * numbers(3.0, -2.0)).sum())
    regular = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64)
    of_regular = torch.tensor([[5.0, -3.0], [-2.0, 1.0]], dtype=torch.float64)
    for _ in range(2):
        torch.testing.assert_close(
            gradient(torch.stack([matrix, regular])), torch.stack([3 * adjugate, -2 * of_regular])
        )
        torch.testing.assert_close(
            gradient(torch.stack([regular, regular])), torch.stack([3 * of_regular, -2 * of_regular])
        )


@pytest.mark.parametrize(
    ("probability", "target", "slope"), [(0.0, 0.0, 1.0), (1.0, 1.0, -1.0), (1e-13, 0.0, 1.0), (0.2, 1.0, -5.0)]
)
def test_certain_probabilities_have_the_slope_of_their_cross_entropy(
    probability: float, target: float, slope: float
) -> None:
    """Torch divides by no less than 1e-12, and makes 0 or a tenth of it."""
    gradient = subgrad.grad(lambda p: (F.binary_cross_entropy(p, numbers(target, 0.0), reduction="none")).sum())
    for _ in range(2):
        torch.testing.assert_close(gradient(numbers(probability, 0.5)), numbers(slope, 2.0))


def test_a_logarithm_that_cross_entropy_cuts_off_is_no_slope_of_1e12() -> None:
    with pytest.raises(Refused):
        subgrad.grad(lambda p: F.binary_cross_entropy(p, numbers(1.0, 0.0)))(numbers(0.0, 0.5))
