"""No nan where a program has a gradient: dead entries, slopes that are infinite, and quotients of 0 and 0.

The first table is of programs reduced from public threads about gradients that are nan, by thread; torch's own gradient
is nan in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Program = Callable[[Tensor], Tensor]
Wanted = Sequence[float] | str


def at(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def half_angle(x: Tensor) -> Tensor:
    s = (x * x).sum()
    return torch.where(s > 0, torch.sin(s.sqrt() / 2) / s.sqrt(), torch.full_like(s, 0.5)) * x.sum()


def recomposed(x: Tensor) -> Tensor:
    u, s, v = torch.linalg.svd(x.view(3, 3), full_matrices=False)
    return ((u * s) @ v).norm()


ZERO_ONE = at(0, 1)
THREADS: dict[str, tuple[Program, Tensor, Wanted]] = {
    "pytorch#187297": (lambda x: torch.where(x > 0, x.sqrt(), x).sum(), at(-1, -4), [1, 1]),
    "pytorch#68425": (lambda x: torch.where(x <= 0, x.exp(), 1 + x).sum(), at(1000, 2), [1, 1]),
    "pytorch#10729": (lambda x: x.exp().clamp(max=1).sum(), at(1000, -1), [0, math.exp(-1)]),
    "pytorch#108618": (lambda x: torch.where(x > 2, x.log2(), 2 * x).sum(), at(0, 1), [2, 2]),
    "pytorch#4132": (lambda x: ((x / ZERO_ONE) * ZERO_ONE).nansum(), at(1, 1), [0, 1]),
    "keras#23063": (lambda x: torch.where(ZERO_ONE == 0, 0.0, x / ZERO_ONE).sum(), at(1, 1), [0, 1]),
    "scico#395": (lambda x: (x * x).sum().sqrt() ** 2, at(0, 0), [0, 0]),
    "tensorflow#5562": (lambda x: (x.sqrt() ** 2).sum(), at(0, 1), [1, 1]),
    "ClimaAtmos#3827": (lambda x: (x * x.sqrt()).sum(), at(0, 1), [0, 1.5]),
    "jax#1722": (
        lambda x: torch.where(x == 0, torch.ones_like(x), x.sin() / x).sum(),
        at(0, 1),
        [0, math.cos(1) - math.sin(1)],
    ),
    "mlx#3668": (lambda x: torch.maximum((x * x).sum().sqrt(), at(1e-10)[0]), at(0, 0), [0, 0]),
    "jax#8732": (recomposed, torch.diag(at(1, 1, 2)).flatten(), (torch.diag(at(1, 1, 2)) / 6**0.5).flatten().tolist()),
    "kornia#3949": (half_angle, at(0, 0, 0), [0.5, 0.5, 0.5]),
    "keras#23075": (lambda x: (x * torch.minimum((x * x).sum().rsqrt(), at(1e12)[0])).sum(), at(0, 0), [1e12, 1e12]),
    "sentence-transformers#4033": (lambda x: (x * x).sum().sqrt(), at(0, 0), "ball"),
    "hypot": (lambda x: torch.hypot(x[0], x[1]), at(0, 0), "ball"),
}
MASK = torch.tensor([[True, True], [False, False]])
DEAD: dict[str, tuple[Program, Tensor, Wanted]] = {
    "a branch beside a kink": (
        lambda x: (torch.relu(x) - torch.relu(-x) + torch.where(x > 5, (x - 7).sqrt(), 0.0)).sum(),
        at(0, 1),
        [1, 1],
    ),
    "an index": (lambda x: (x.log() * at(2, 3))[1:].sum(), at(0, 1), [0, 3]),
    "a mask": (lambda x: x.rsqrt()[x > 1].sum(), at(0, 4), [0, -1 / 16]),
    "a row of attention": (
        lambda x: (torch.softmax(x.view(2, 2).masked_fill(MASK, -math.inf), -1).nan_to_num(0.0) * at(1, 2)).sum(),
        at(1, 1, 1, 1),
        [0, 0, -0.25, 0.25],
    ),
    "a norm of a row": (
        lambda x: torch.where(at(0, 1) > 0, x.view(2, 2).norm(dim=1) ** 0.5, 0.0).sum(),
        at(0, 0, 0, 4),
        [0, 0, 0, 0.25],
    ),
    "beyond a bound": (lambda x: (1 / (x * x)).clamp(max=3).sum(), at(0, 1), [0, -2]),
    "the larger wins": (lambda x: torch.maximum(x.acos(), at(4, 0)).sum(), at(1, 0), [0, -1]),
    "at the edge of where it is defined": (lambda x: ((-x).sqrt() ** 2).sum(), at(0), [-1]),
    "the root of a square, cubed": (lambda x: ((x * x) ** (1 / 3)).pow(3).sum(), at(0, 1), [0, 2]),
    "x sqrt(x)": (lambda x: (x * x.sqrt()).sum(), at(0), [0]),
}


def check(program: Program, x: Tensor, wanted: Wanted) -> None:
    found = subgrad.grad(program)(x)
    if isinstance(wanted, str):
        assert float(found.norm()) <= 1 + 1e-9
    else:
        torch.testing.assert_close(found, at(*wanted), rtol=1e-6, atol=1e-6)
    again = subgrad.grad(program, seed=5)
    for _ in range(2):  # the second call of one remembers
        assert not again(x).isnan().any()


@pytest.mark.parametrize("name", THREADS)
def test_programs_of_public_threads(name: str) -> None:
    program, x, wanted = THREADS[name]
    assert not torch.func.grad(program)(x).isfinite().all()
    check(program, x, wanted)


@pytest.mark.parametrize("name", DEAD)
def test_what_the_result_does_not_follow_contributes_nothing(name: str) -> None:
    check(*DEAD[name])


@pytest.mark.parametrize("name", [name for name in THREADS if name not in ("jax#8732",)])
def test_in_single_precision(name: str) -> None:
    program, x, wanted = THREADS[name]
    constants = {"pytorch#4132", "keras#23063", "mlx#3668", "keras#23075"}  # of double precision: the result is
    found = subgrad.grad(program)(x.float())
    assert found.dtype == torch.float32
    if not isinstance(wanted, str) and name not in constants:
        torch.testing.assert_close(found, at(*wanted).float(), rtol=1e-4, atol=1e-4)
    assert not found.isnan().any()


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (lambda x: x.sqrt().sum(), at(0, 1)),
        (lambda x: torch.xlogy(x, x).sum(), at(0, 1)),
        (lambda x: torch.where(x == 0, 0.0, x / x.abs()).sum(), at(0, 1)),
        (lambda x: x.pow(1 / 3).sum(), at(0)),
        (lambda x: torch.where(x > 0, x.sqrt(), 0 * x).sum(), at(0)),
        (lambda x: x.rsqrt()[x > 0].sum(), at(0, 4)),
        (lambda x: (1 / x).clamp(max=3).sum(), at(0, 1)),
    ],
)
def test_slopes_that_are_infinite_and_jumps_are_refused(program: Program, x: Tensor) -> None:
    with pytest.raises(Refused):
        subgrad.grad(program)(x)


@pytest.mark.parametrize("f", [torch.abs, torch.relu, torch.log, lambda x: x / x.abs()])
def test_a_value_that_is_nan_has_the_gradient_of_torch(f: Any) -> None:
    x = at(math.nan, 1.5)
    program: Program = lambda x: f(x).sum()  # noqa: E731
    assert torch.equal(subgrad.grad(program)(x).nan_to_num(7), torch.func.grad(program)(x).nan_to_num(7))
    with pytest.raises(Refused, match="is nan here"):
        subgrad.element(program)(x)


JVPS: dict[str, tuple[Program, Tensor, Tensor, Wanted]] = {
    "dead": (lambda x: torch.where(x > 0, x.sqrt(), x), at(-1, 4), at(1, 1), [1, 0.25]),
    "x sqrt(x)": (lambda x: x * x.sqrt(), at(0), at(1), [0]),
    "sqrt(x)^2": (lambda x: x.sqrt() ** 2, at(0), at(1), [1]),
    "sinc": (lambda x: torch.where(x == 0, torch.ones_like(x), x.sin() / x), at(0), at(1), [0]),
    "nan of the value": (torch.log, at(-1, 2), at(1, 1), [-1, 0.5]),
}


@pytest.mark.parametrize("name", JVPS)
def test_directional_derivatives(name: str) -> None:
    program, x, v, wanted = JVPS[name]
    torch.testing.assert_close(subgrad.jvp(program, (x,), (v,))[1], at(*wanted), rtol=1e-6, atol=1e-6)
