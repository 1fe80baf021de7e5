"""Ten ways to write one function have one gradient, where torch gives several."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad

Function = Callable[[Tensor], Tensor]
ROUNDING = 1e-12


def entry_by_entry(one: Function) -> Function:
    return lambda x: torch.stack([one(each) for each in x])


def assigned(x: Tensor, *where: tuple[Callable[[Tensor], Tensor], float]) -> Tensor:
    y = x.clone()
    for mask, value in where:
        y[mask(y)] = value
    return y


def negated(x: Tensor) -> Tensor:
    y = x.clone()
    y[y < 0] *= -1
    return y


def tail(x: Tensor) -> Tensor:
    return torch.log1p(torch.exp(-x.abs()))


def quadratic(x: Tensor) -> Tensor:
    return x * x / 2


def larger(x: Tensor) -> Tensor:
    return torch.stack((x, torch.zeros_like(x))).max(0).values


SOFTPLUS: list[Function] = [
    F.softplus,
    lambda x: F.relu(x) + tail(x),
    lambda x: x.clamp(min=0) + tail(x),
    lambda x: torch.maximum(x, torch.zeros_like(x)) + tail(x),
    lambda x: torch.where(x > 0, x, 0.0) + tail(x),
    lambda x: torch.where(x >= 0, x, 0.0) + tail(x),
    lambda x: x * (x > 0) + tail(x),
    lambda x: x.masked_fill(x < 0, 0.0) + tail(x),
    lambda x: torch.where(x > 0, x + torch.log1p(torch.exp(-x)), torch.log1p(torch.exp(x))),
    lambda x: (x + x.abs()) / 2 + torch.log1p(torch.exp(-torch.maximum(x, -x))),
    lambda x: larger(x) + (torch.exp(x - larger(x)) + torch.exp(-larger(x))).log(),
    entry_by_entry(lambda v: v + torch.log1p(torch.exp(-v)) if v > 0 else torch.log1p(torch.exp(v))),
]

TARGET = 0.25
BCE: list[Function] = [
    lambda x: F.binary_cross_entropy_with_logits(x, torch.full_like(x, TARGET), reduction="none"),
    *(lambda x, softplus=softplus: softplus(x) - TARGET * x for softplus in SOFTPLUS[1:]),
]

RELU6: list[Function] = [
    F.relu6,
    torch.nn.ReLU6(),
    lambda x: F.hardtanh(x, 0.0, 6.0),
    lambda x: x.clamp(0, 6),
    lambda x: F.relu(x).clamp(max=6),
    lambda x: torch.minimum(torch.maximum(x, torch.zeros_like(x)), torch.full_like(x, 6)),
    lambda x: F.relu(x) - F.relu(x - 6),
    lambda x: torch.where(x < 0, 0.0, torch.where(x > 6, 6.0, x)),
    lambda x: torch.where(x <= 0, 0.0, torch.where(x >= 6, 6.0, x)),
    lambda x: assigned(x, (lambda y: y < 0, 0.0), (lambda y: y > 6, 6.0)),
    lambda x: ((x.abs() - (x - 6).abs()) + 6) / 2,
    lambda x: torch.stack((0 * x, x, 0 * x + 6)).median(0).values,
    entry_by_entry(lambda v: min(max(v, 0 * v), 0 * v + 6)),
]

HUBER: list[Function] = [
    lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    lambda x: torch.where(x.abs() < 1, quadratic(x), x.abs() - 0.5),
    lambda x: torch.where(x.abs() <= 1, quadratic(x), x.abs() - 0.5),
    lambda x: quadratic(x.abs().clamp(max=1)) + x.abs() - x.abs().clamp(max=1),
    lambda x: quadratic(x.clamp(-1, 1)) + (x - x.clamp(-1, 1)).abs(),
    lambda x: quadratic(F.hardtanh(x)) + F.relu(x.abs() - 1),
    lambda x: quadratic(torch.minimum(x.abs(), torch.ones_like(x))) + F.relu(torch.maximum(x, -x) - 1),
    lambda x: quadratic(x - F.softshrink(x, 1.0)) + F.softshrink(x, 1.0).abs(),
    lambda x: quadratic(x) - quadratic(F.relu(x.abs() - 1)),
    lambda x: quadratic(x) * (x.abs() < 1) + (x.abs() - 0.5) * (x.abs() >= 1),
    entry_by_entry(lambda v: quadratic(v) if -1 < v < 1 else abs(v) - 0.5),
]

ABS: list[Function] = [
    torch.abs,
    lambda x: torch.maximum(x, -x),
    lambda x: F.relu(x) + F.relu(-x),
    lambda x: 2 * F.relu(x) - x,
    lambda x: x.clamp(min=0) - x.clamp(max=0),
    lambda x: torch.where(x > 0, x, -x),
    lambda x: torch.where(x < 0, -x, x),
    lambda x: F.leaky_relu(x, -1.0),
    negated,
    lambda x: torch.hypot(x, torch.zeros_like(x)),
    lambda x: torch.linalg.vector_norm(x[:, None], dim=1),
    lambda x: torch.stack((x, -x)).max(0).values,
    entry_by_entry(lambda v: v if v > 0 else -v),
]


def of_three(select: Callable[[Tensor], Tensor]) -> Function:
    return lambda x: select(x)[None]


def sorted_by_hand(x: Tensor) -> Tensor:
    a, b, c = x
    if a > b:
        a, b = b, a
    if b > c:
        b, c = c, b
    return a if a > b else b


MEDIAN_OF_THREE: list[Function] = [
    of_three(lambda x: x.median()),
    of_three(lambda x: x.median(0).values),
    of_three(lambda x: x.nanmedian()),
    of_three(lambda x: x.sort().values[1]),
    of_three(lambda x: x.topk(2).values[1]),
    of_three(lambda x: x.kthvalue(2).values),
    of_three(lambda x: x.quantile(0.5)),
    of_three(lambda x: x.sum() - x.amax() - x.amin()),
    of_three(lambda x: torch.maximum(torch.minimum(x[0], x[1]), torch.minimum(torch.maximum(x[0], x[1]), x[2]))),
    of_three(lambda x: x[2].clamp(torch.minimum(x[0], x[1]), torch.maximum(x[0], x[1]))),
    of_three(lambda x: x[x.argsort()[1]]),
    of_three(sorted_by_hand),
    of_three(lambda x: sorted(x)[1]),
]

LOG_SUM_EXP: list[Function] = [
    of_three(lambda x: x.logsumexp(0)),
    of_three(lambda x: x.exp().sum().log()),
    of_three(lambda x: x.max() + (x - x.max()).exp().sum().log()),
    of_three(lambda x: x.amax() + (x - x.amax()).exp().sum().log()),
    of_three(lambda x: x.max(0).values + (x - x.max()).exp().sum().log()),
    of_three(lambda x: x.sort().values[2] + (x - x.amax()).exp().sum().log()),
    of_three(lambda x: x.cummax(0).values[2] + (x - x.max(0).values).exp().sum().log()),
    of_three(lambda x: torch.maximum(torch.maximum(x[0], x[1]), x[2]) + (x - x[x.argmax()]).exp().sum().log()),
    of_three(lambda x: max(x) + (x - x.max(0).values).exp().sum().log()),
    of_three(lambda x: x.topk(1).values[0] + (x - F.max_pool1d(x[None, None], 3).reshape(())).exp().sum().log()),
]

HARDSWISH: list[Function] = [
    F.hardswish,
    lambda x: x * F.hardsigmoid(x),
    lambda x: x * F.relu6(x + 3) / 6,
    lambda x: x * (x + 3).clamp(0, 6) / 6,
    lambda x: x * (x / 6 + 0.5).clamp(0, 1),
    lambda x: x * F.hardtanh(x + 3, 0.0, 6.0) / 6,
    lambda x: x * (F.relu(x + 3) - F.relu(x - 3)) / 6,
    lambda x: torch.where(x > 3, x, torch.where(x < -3, 0.0, x * (x + 3) / 6)),
    lambda x: torch.where(x >= 3, x, torch.where(x <= -3, 0.0, x * (x + 3) / 6)),
    lambda x: x * assigned(x / 6 + 0.5, (lambda y: y < 0, 0.0), (lambda y: y > 1, 1.0)),
    entry_by_entry(lambda v: v if v > 3 else v * (v + 3) / 6 if v > -3 else 0 * v),
]

FUNCTIONS: dict[str, tuple[list[Function], list[float]]] = {
    "softplus": (SOFTPLUS, [0.0, 1.0, 0.0]),
    "bce": (BCE, [0.0, -2.0, 0.0]),
    "relu6": (RELU6, [0.0, 6.0, 3.0]),
    "huber": (HUBER, [1.0, -1.0, 0.0, 2.0]),
    "abs": (ABS, [0.0, 2.0, 0.0]),
    "median of three": (MEDIAN_OF_THREE, [1.0, 1.0, 1.0]),
    "logsumexp": (LOG_SUM_EXP, [2.0, 2.0, 2.0]),
    "hardswish": (HARDSWISH, [3.0, -3.0, 0.0]),
}

functions = pytest.mark.parametrize(("spellings", "point"), FUNCTIONS.values(), ids=FUNCTIONS.keys())


def weighted(function: Function) -> Function:
    return lambda x: (function(x) * torch.arange(1.0, 1 + len(function(x)), dtype=x.dtype)).sum()


@functions
def test_there_are_ten_and_they_are_one_function(spellings: list[Function], point: list[float]) -> None:
    assert len(spellings) >= 10
    for nearby in torch.randn(2, len(point), dtype=torch.float64, generator=torch.Generator().manual_seed(0)):
        for x in (torch.tensor(point, dtype=torch.float64), torch.tensor(point) + nearby):
            first, *rest = (function(x) for function in spellings)
            assert all(torch.allclose(first, each, rtol=0, atol=1e-12) for each in rest)


@functions
@pytest.mark.parametrize("seed", range(2))
def test_they_have_one_gradient(spellings: list[Function], point: list[float], seed: int) -> None:
    x = torch.tensor(point, dtype=torch.float64)
    first, *rest = (subgrad.grad(weighted(function), seed=seed)(x) for function in spellings)
    for at, each in enumerate(rest, 1):
        assert torch.allclose(first, each, rtol=0, atol=ROUNDING), (
            f"spelling {at}: {each.tolist()}, not {first.tolist()}"
        )


@functions
def test_torch_gives_several(spellings: list[Function], point: list[float]) -> None:
    x = torch.tensor(point, dtype=torch.float64)
    found = {tuple(torch.func.grad(weighted(function))(x).mul(1e6).round().tolist()) for function in spellings}
    assert len(found) > 1
