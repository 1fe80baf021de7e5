"""Points on a bound as far as their precision tells, or nearer to a kink than any step that values are told at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]
NARROW = (torch.float32, torch.float16, torch.bfloat16)

# Of each the slopes on the left and on the right of 0.1, which no narrow dtype holds.
BOUNDED: dict[str, tuple[Function, float, float]] = {
    "clamp from below": (lambda x: x.clamp(min=0.1).sum(), 0, 1),
    "clamp from above": (lambda x: x.clamp(max=0.1).sum(), 1, 0),
    "where": (lambda x: torch.where(x > 0.1, x, 2 * x - 0.1).sum(), 2, 1),
    "where, the other way": (lambda x: torch.where(x <= 0.1, x, 0.1).sum(), 1, 0),
    "hardtanh": (lambda x: F.hardtanh(x, -0.1, 0.1).sum(), 1, 0),
    "softshrink": (lambda x: F.softshrink(x, 0.1).sum(), 0, 1),
    "threshold": (lambda x: F.threshold(x, 0.1, 0.1).sum(), 0, 1),
    "if": (lambda x: sum(v if v > 0.1 else 2 * v - 0.1 for v in x), 2, 1),  # type: ignore[arg-type, return-value]
    "relu": (lambda x: F.relu(x - 0.1).sum(), 0, 1),
    "maximum": (lambda x: torch.maximum(x, torch.full_like(x, 0.1)).sum(), 0, 1),
}


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_are_where_the_precision_puts_them(name: str, dtype: torch.dtype) -> None:
    f, left, right = BOUNDED[name]
    on = torch.tensor(0.1, dtype=dtype)
    above, below = torch.nextafter(on, on + 1), torch.nextafter(on, on - 1)
    for beside, slope in ((above, right), (below, left)):
        found = subgrad.element(f)(torch.stack([on, beside]))
        assert found.gradient.tolist() == [right if found.direction[0] > 0 else left, slope]
    for ahead, slope in ((1.0, right), (-1.0, -left)):
        assert subgrad.jvp(f, (on.reshape(1),), (torch.full((1,), ahead, dtype=dtype),))[1].item() == slope


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_jump_at_a_bound_is_seen_in_every_precision(dtype: torch.dtype) -> None:
    x = torch.full((2,), 0.1, dtype=dtype)
    for f in (lambda x: F.hardshrink(x, 0.1).sum(), lambda x: torch.where(x > 0.1, 1 + x, 0.0).sum()):
        with pytest.raises(Refused):
            subgrad.grad(f)(x)


BESIDE = 0.1 + 0.2  # which is 0.3 and a rounding more


def at(*entries: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(entries, dtype=dtype)


# Each with the point, its last entry on a kink of slopes -1 and 1, and the slopes in the others.
NEAR: dict[str, tuple[Function, Tensor, list[float]]] = {
    "max": (lambda x: x[:2].max() + x[2].abs(), at(0.3, BESIDE, 0.0), [0, 1]),
    "a thousand more": (lambda x: 1000 + x[:2].max() + x[2].abs(), at(0.3, BESIDE, 0.0), [0, 1]),
    "relu": (lambda x: torch.relu(x[0]) + x[1].abs(), at(-1e-20, 0.0), [0]),
    "relu, one operator": (lambda x: 2 * torch.relu(x).sum() - x[1], at(-1e-20, 0.0), [0]),
    "relu in float32": (lambda x: torch.relu(x[0]) + x[1].abs(), at(-1e-20, 0.0, dtype=torch.float32), [0]),
    "relu, further": (lambda x: torch.relu(x[0]) + x[1].abs(), at(-1e-12, 0.0, dtype=torch.float32), [0]),
    "a difference": (lambda x: torch.relu(x[0] - x[1]) + x[2].abs(), at(0.3, BESIDE, 0.0), [0, 0]),
    "clamp": (lambda x: x[:2].clamp(max=0.3).sum() + x[2].abs(), at(0.0, BESIDE, 0.0), [1, 0]),
    "if": (lambda x: (x[0] if x[0] > 0.3 else 2 * x[0] - 0.3) + x[1].abs(), at(BESIDE, 0.0), [1]),
    "windows": (lambda x: F.max_pool1d(x[None, :2], 2).sum() + x[2].abs(), at(0.3, BESIDE, 0.0), [0, 1]),
    "cummax": (lambda x: x[:2].cummax(0).values.sum() + x[2].abs(), at(0.3, BESIDE, 0.0), [1, 1]),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_kink_nearer_than_any_step_is_not_stepped_over(name: str) -> None:
    f, x, slopes = NEAR[name]
    for seed in range(3):
        found = subgrad.element(f, seed=seed)(x)
        assert found.gradient.tolist() == [*slopes, float(found.direction[-1].sign())]
    for ahead in (torch.ones_like(x), -torch.linspace(1, 2, x.numel(), dtype=x.dtype)):
        expected = (ahead[:-1] * torch.tensor(slopes, dtype=x.dtype)).sum() + ahead[-1].abs()
        torch.testing.assert_close(subgrad.jvp(f, (x,), (ahead,))[1], expected)


def test_a_quantity_that_is_rounded_on_its_way_is_not_sure_of_its_side() -> None:
    ones = torch.ones(2, 2, dtype=torch.float64)  # with an eigenvalue of 0, to rounding
    f: Function = lambda x: torch.relu(torch.linalg.eigvalsh(x)).sum()  # noqa: E731
    turn = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    for sign, expected in ((1.0, 2.0), (-1.0, 0.0)):
        assert subgrad.jvp(f, (ones,), (sign * turn,))[1].item() == pytest.approx(expected, abs=1e-6)


def test_what_is_extrapolated_does_not_step_over_a_kink() -> None:
    f: Function = lambda x: torch.relu(x[0]) + torch.func.jacfwd(torch.relu)(x[1]) * x[1]  # noqa: E731
    for seed in range(3):
        try:
            found = subgrad.grad(f, seed=seed)(at(-1e-20, 0.0))
        except Refused:
            continue
        assert found[0] == 0


@pytest.mark.parametrize("pooled", [lambda x: x.view(2, 2).amax(1), lambda x: F.max_pool1d(x[None], 2)])
def test_one_operator_meets_a_kink_and_lies_beside_another(pooled: Function) -> None:
    for seed in range(3):
        found = subgrad.element(lambda x: pooled(x).sum(), seed=seed)(at(0.3, BESIDE, 0.0, 0.0))
        assert not found.extrapolated
        assert found.gradient[:2].tolist() == [0, 1]
        assert found.gradient[2:].sum() == 1


def test_one_clamp_meets_a_bound_and_lies_beside_another() -> None:
    for f in (lambda x: x.clamp(-0.3, 0.3).sum(), lambda x: F.hardtanh(x, -0.3, 0.3).sum()):
        assert subgrad.grad(f)(at(0.3, BESIDE, -BESIDE, 1.0, 0.0))[1:].tolist() == [0, 0, 0, 1]


def test_backward_does_not_step_over_a_kink_either() -> None:
    head = torch.nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        head.weight.copy_(at(0.3, BESIDE))
    rest = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    for times in (1, 2):
        subgrad.backward(lambda: head.weight.max() + rest.abs().sum(), [head.weight, rest])
        assert head.weight.grad is not None
        assert head.weight.grad.tolist() == [[0.0, times]]
