"""No nan where a program has a gradient: dead entries, slopes that are infinite, and quotients of 0 and 0.

The first table is of programs reduced from public threads about gradients that are nan, by thread; torch's own gradient
is nan in each.
"""

from __future__ import annotations

import contextlib
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


def distances(x: Tensor) -> Tensor:
    apart = x.view(2, 1, 2) - x.view(1, 2, 2)
    return (apart * apart).sum(-1).sqrt()


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
    "distances of points from themselves": (lambda x: distances(x).sum(), at(0, 0, 3, 4), [-1.2, -1.6, 1.2, 1.6]),
    "a kernel of distances": (
        lambda x: torch.exp(-distances(x)).sum(),
        at(0, 0, 3, 4),
        [1.2 * math.exp(-5), 1.6 * math.exp(-5), -1.2 * math.exp(-5), -1.6 * math.exp(-5)],
    ),
    "an angle that is always 0": (lambda x: torch.atan2(0 * x, 0 * x).sum() + x.sum(), at(1, 2), [1, 1]),
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
        (lambda x: distances(x).sum() + 1e-3 * x[0].sqrt(), at(0, 0, 3, 4)),
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


PADDED = torch.tensor([[False, False], [True, True]])
BROADCAST: dict[str, tuple[Program, Tensor, Wanted]] = {
    "over constants, one of them 0": (
        lambda x: torch.where(ZERO_ONE > 0, x.sum() / ZERO_ONE, 0.0).sum(),
        at(2, 3),
        [1, 1],
    ),
    "a row of 0 and 0": (
        lambda x: torch.where(~PADDED, x[0] / x[1:].view(2, 1) + x[0], 0.0).sum(),
        at(2, 4, 0),
        [2.5, -0.25, 0],
    ),
    "powers of constants": (
        lambda x: torch.where(ZERO_ONE > 0, x.sum() ** (3 / ZERO_ONE), 0.0).sum(),
        at(1, 1),
        [12, 12],
    ),
    "in place": (
        lambda x: x.new_ones(2).mul_(x.sum()).div_(ZERO_ONE * x[0])[1:].sum(),
        at(2, 4),
        [-1, 0.5],
    ),
    "attention with a padded row": (
        lambda x: (torch.softmax(x[:4].view(2, 2).masked_fill(PADDED, -math.inf), -1) @ x[4:]).nan_to_num(0.0).sum(),
        at(0, 0, 5, 6, 1, 3),
        [-0.5, 0.5, 0, 0, 0.5, 0.5],
    ),
    "a product of matrices": (
        lambda x: ((torch.stack((x, x.log())) @ x[:, None])[:1]).sum(),
        at(-1, 2),
        [-2, 4],
    ),
}


@pytest.mark.parametrize("name", BROADCAST)
def test_what_an_operator_sums_over_is_spared_one_by_one(name: str) -> None:
    check(*BROADCAST[name])


def log_of_rotation(q: Tensor) -> Tensor:
    """The rotation vector of a unit quaternion, w first."""
    w, v = q[..., :1], q[..., 1:]
    sine = (v * v).sum(-1, keepdim=True).sqrt()
    turn = 2 * torch.where(w < 0, torch.atan2(-sine, -w), torch.atan2(sine, w))
    return torch.where(sine > 0, turn / sine, 2 * torch.ones_like(sine)) * v


def log_of_rotation_guarded(q: Tensor) -> Tensor:
    """The same with roots and quotients that are kept from 0 before they are taken."""
    w, square = q[..., 0], q[..., 1:].square().sum(-1)
    is_turned = square > 0
    sine = torch.where(is_turned, torch.where(is_turned, square, torch.ones_like(square)).sqrt(), 0 * square)
    turn = 2 * torch.where(w < 0, torch.atan2(-sine, -w), torch.atan2(sine, w))
    factor = torch.where(is_turned, turn / torch.where(is_turned, sine, torch.ones_like(sine)), 2 + 0 * sine)
    return factor[..., None] * q[..., 1:]


def quaternion(r: Tensor) -> Tensor:
    """Of a rotation by less than two thirds of a turn."""
    w = (1 + r[0, 0] + r[1, 1] + r[2, 2]).sqrt() / 2
    return torch.stack((w, *(part / (4 * w) for part in (r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("log", [log_of_rotation, log_of_rotation_guarded])
def test_the_logarithm_of_a_rotation_at_the_identity(log: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    weights = at(1, -2, 3).to(dtype)
    found = subgrad.grad(lambda q: (log(q) @ weights).sum())(at(1, 0, 0, 0).to(dtype))
    torch.testing.assert_close(found, at(0, 2, -4, 6).to(dtype))
    of_matrix = subgrad.grad(lambda r: log(quaternion(r)) @ weights)(torch.eye(3, dtype=dtype))
    a, b, c = (weights / 2).tolist()
    torch.testing.assert_close(of_matrix, torch.tensor([[0, -c, b], [c, 0, -a], [-b, a, 0]], dtype=dtype))


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (lambda x: (1 / (1 / x)).sum(), at(0)),  # the cotangent of 1 / x is 0 there
        (lambda x: x.log().exp().sum(), at(0)),
        (lambda x: torch.exp2(x.log2()).sum() + x.sum(), at(0)),
    ],
)
def test_a_cotangent_of_0_where_the_result_does_follow(program: Program, x: Tensor) -> None:
    with contextlib.suppress(Refused):
        found = subgrad.grad(program)(x)
        slope = (program(x + 1e-6) - program(x)) / 1e-6
        torch.testing.assert_close(found.sum(), slope, rtol=1e-5, atol=1e-5)


def test_a_branch_of_python_that_asks_whether_numbers_are_finite() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * x.log()
        return torch.stack([b if b.isfinite() else a for a, b in zip(x, y, strict=True)]).sum()

    torch.testing.assert_close(subgrad.grad(program)(at(1, 2)), at(1, 1 + math.log(2)))
    with pytest.raises(Refused):
        subgrad.grad(program)(at(0))


@pytest.mark.parametrize("f", [torch.asin, torch.acos, torch.special.entr])
def test_an_infinite_gradient_of_a_finite_value_is_refused(f: Any) -> None:
    x = at(0) if f is torch.special.entr else at(1)
    assert torch.func.grad(lambda x: f(x).sum())(x).isinf().all()
    with pytest.raises(Refused):
        subgrad.grad(lambda x: f(x).sum())(x)
    with pytest.raises(Refused):
        subgrad.jvp(lambda x: f(x).sum(), (x,), (-torch.ones_like(x),))


def test_a_gradient_that_is_too_large_for_half_precision_is_infinite() -> None:
    """As scalers of losses expect, which take a smaller step then."""
    x = torch.tensor([0.0, 1e-4], dtype=torch.float16)
    assert subgrad.grad(lambda x: (x * 300 * 300).sum())(x).isposinf().all()


def test_what_is_remembered_of_another_point_does_no_harm() -> None:
    grad = subgrad.grad(lambda x: torch.relu(x - 1).sum() + torch.where(x == 0, 1.0, x.sin() / x).sum())
    for x, wanted in ((at(1, 0.5), [0.5, 0]), (at(0, 0), [0, 0]), (at(1, 0), [0.5, 0]), (at(0, 0), [0, 0])):
        found = grad(x)
        assert found.isfinite().all()
        if not any(wanted):
            torch.testing.assert_close(found, at(*wanted), rtol=0, atol=1e-9)


JVPS: dict[str, tuple[Program, Tensor, Tensor, Sequence[float]]] = {
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rotations_of_kornia_at_the_identity(dtype: torch.dtype) -> None:
    from kornia.geometry.conversions import quaternion_to_axis_angle, rotation_matrix_to_axis_angle

    weights = torch.tensor([2.0, -1.0, 3.0], dtype=dtype)

    def of_quaternion(q: Tensor) -> Tensor:
        return (quaternion_to_axis_angle(q) * weights).sum()

    def of_matrix(matrix: Tensor) -> Tensor:
        return (rotation_matrix_to_axis_angle(matrix) * weights).sum()

    # Near the identity the axis times the angle is twice the vector part, and (R - R^T) / 2, read as a vector.
    found = subgrad.grad(of_quaternion)(torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=dtype))
    torch.testing.assert_close(found, torch.tensor([0.0, 4.0, -2.0, 6.0], dtype=dtype))
    x, y, z = weights.tolist()
    wanted = torch.tensor([[[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]], dtype=dtype) / 2
    torch.testing.assert_close(subgrad.grad(of_matrix)(torch.eye(3, dtype=dtype)[None]), wanted)
