"""Jumps and cuts that no operator's rule sees: casts, sets, bins, branch cuts, lists of tensors, numbers and copies.

What has a gradient is held against the values of the program nearby; what has none is refused with its line.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import subgrad
from subgrad.apply.passing import running
from subgrad.clarke import Refused
from subgrad.clarke.passes import Look
from subgrad.clarke.watch import Watch

Function = Callable[[Tensor], Tensor]
TRUTH = torch.tensor(True)
WEIGHTS = torch.tensor([2.0, 3.0], dtype=torch.float64)  # so that no sum is alike in its entries


def numbers(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch.tensor(x) and others advise against themselves
        yield


def gradients_nearby(function: Function, point: Tensor, radius: float = 1e-5) -> list[Tensor]:
    """Central differences at random points close by, where the program is smooth."""
    generator = torch.Generator().manual_seed(0)
    step, found = radius * 1e-3, []
    for _ in range(40):
        x = point + radius * torch.randn(point.shape, generator=generator, dtype=point.dtype)
        moves = step * torch.eye(point.numel(), dtype=point.dtype)
        found.append(torch.stack([(value(function, x + e) - value(function, x - e)) / (2 * step) for e in moves]))
    return found


def value(function: Function, x: Tensor) -> Tensor:
    torch.manual_seed(5)
    return torch.as_tensor(function(x), dtype=torch.float64).detach()


def assert_found_nearby(function: Function, point: Tensor) -> None:
    nearby = gradients_nearby(function, point)
    for seed in range(6):
        torch.manual_seed(5)
        found = subgrad.grad(function, seed=seed)(point)
        assert min((found - each).abs().max() for each in nearby) < 1e-3, (found, nearby[:3])


def where_not_zero(truth: Function) -> Function:
    """The identity, written with truth values of the numbers."""
    return lambda x: (torch.where(truth(x), x, 0 * x) * WEIGHTS).sum()


TRUTHS: dict[str, Function] = {
    "to a type": lambda x: x.to(torch.bool),
    "to a type by keyword": lambda x: x.to(dtype=torch.bool),
    "to another tensor": lambda x: x.to(TRUTH),
    "to a device and a type": lambda x: x.to("cpu", torch.bool),
    "type": lambda x: x.type(torch.bool),
    "type by name": lambda x: x.type("torch.BoolTensor"),
    "type_as": lambda x: x.type_as(TRUTH),
    "bool": lambda x: x.bool(),
    "is_nonzero": lambda x: torch.stack([torch.tensor(torch.is_nonzero(each)) for each in x]),
    "if": lambda x: torch.stack([torch.tensor(bool(each)) for each in x]),
    "operator": lambda x: torch.ops.aten.to.dtype(x, torch.bool),
    "copy": lambda x: torch.ops.aten._to_copy.default(x, dtype=torch.bool),
    "copy_": lambda x: torch.zeros(2, dtype=torch.bool).copy_(x),
    "isin": lambda x: ~torch.isin(x, numbers(0.0)),
    "isin, inverted": lambda x: torch.isin(x, torch.zeros(1, dtype=torch.float64), invert=True),
    "isin a number": lambda x: ~torch.isin(x, 0.0),
    "isin by keyword": lambda x: ~torch.isin(elements=x, test_elements=numbers(0.0)),
    "isin what moves": lambda x: torch.stack([~torch.isin(torch.zeros_like(each), each) for each in x]),
    "isclose": lambda x: ~torch.isclose(x, torch.zeros_like(x), atol=0.0),
    "equal": lambda x: torch.tensor([not torch.equal(each, torch.zeros_like(each)) for each in x]),
    "equal, as a method": lambda x: torch.tensor([not each.equal(torch.zeros_like(each)) for each in x]),
    "allclose": lambda x: torch.tensor([not torch.allclose(each, torch.zeros_like(each), atol=0.0) for each in x]),
    "in": lambda x: torch.tensor([0.0 not in each for each in x.split(1)]),
}


@pytest.mark.parametrize("kind", TRUTHS)
def test_numbers_that_are_asked_whether_they_are_0_answer_as_a_little_further_on(kind: str) -> None:
    function = where_not_zero(TRUTHS[kind])
    assert_found_nearby(function, numbers(0.0, 0.0))
    assert_found_nearby(function, numbers(0.0, 0.7))


INTEGERS: dict[str, Function] = {
    **{name: (lambda x, name=name: getattr(x, name)().long()) for name in ("byte", "char", "short", "int", "long")},
    "to": lambda x: x.to(torch.long),
    "to another tensor": lambda x: x.to(torch.tensor(1)),
    "type": lambda x: x.type(torch.long),
    "copy_": lambda x: torch.zeros(2, dtype=torch.long).copy_(x),
    "floor_divide": lambda x: torch.floor_divide(x, 1.0).detach().long(),
    "//": lambda x: (x // 1).long(),
    "bucketize": lambda x: torch.bucketize(x, numbers(1.0, 2.0, 3.0), right=True),
    "searchsorted": lambda x: torch.searchsorted(numbers(1.0, 2.0, 3.0), x, side="right"),
    "searchsorted, unsorted": lambda x: torch.searchsorted(
        numbers(2.0, 1.0, 3.0), x, right=True, sorter=torch.tensor([1, 0, 2])
    ),
}


def assigned(x: Tensor) -> Tensor:
    found = torch.zeros(2, dtype=torch.long)
    found[:] = x
    return found


@pytest.mark.parametrize("kind", [*INTEGERS, "assignment"])
def test_numbers_that_are_rounded_are_so_as_a_little_further_on(kind: str) -> None:
    rounded = {**INTEGERS, "assignment": assigned}[kind]
    slopes, starts = numbers(0.0, 1.0, 4.0), numbers(0.0, 0.0, 1.0)

    def interpolated(x: Tensor) -> Tensor:
        places = rounded(x)
        return ((starts[places] + (x - places) * slopes[places]) * WEIGHTS).sum()

    assert_found_nearby(interpolated, numbers(1.0, 1.0))
    assert_found_nearby(lambda x: interpolated(x) - interpolated(2 - x), numbers(1.0, 0.5))


MOVING_BOUNDARIES: dict[str, Callable[[Tensor], Tensor]] = {
    "searchsorted": lambda edges: torch.searchsorted(edges, numbers(1.0)),
    "searchsorted a number": lambda edges: torch.searchsorted(edges, 1.0),
    "searchsorted in rows": lambda edges: torch.searchsorted(edges.expand(2, 3), numbers(1.0, 1.0)[:, None])[0],
    "bucketize": lambda edges: torch.bucketize(numbers(1.0), edges),
    "bucketize a number": lambda edges: torch.bucketize(1.0, edges, right=True),
}


@pytest.mark.parametrize("kind", MOVING_BOUNDARIES)
def test_boundaries_may_move(kind: str) -> None:
    def function(x: Tensor) -> Tensor:
        place = MOVING_BOUNDARIES[kind](torch.stack([x[0] - 1, x[0], x[0] + 1]))
        return torch.where(place <= 1, 2 * (1 - x[0]), 5 * (1 - x[0])).sum() + x[1]

    assert_found_nearby(function, numbers(1.0, 0.0))


@pytest.mark.parametrize("how", ["quantile", "nanquantile"])
def test_levels_of_quantiles_have_the_slopes_of_their_two_sides(how: str) -> None:
    entries = numbers(0.0, 1.0, 3.0, 7.0, 8.0)
    quantile = getattr(torch, how)
    assert_found_nearby(lambda q: quantile(entries, q[0]), numbers(0.5))
    assert_found_nearby(lambda q: (quantile(entries, q) * WEIGHTS).sum(), numbers(0.25, 0.6))
    assert_found_nearby(lambda q: (quantile(torch.stack([entries, -entries], 1), q, 0) * WEIGHTS).sum(), numbers(0.5, 0.3))
    assert_found_nearby(lambda q: quantile(entries.outer(q), q, 0, True).diagonal().sum(), numbers(0.75, 0.1))
    away = numbers(0.3)
    torch.testing.assert_close(
        subgrad.grad(lambda q: quantile(entries, q[0]))(away), torch.func.grad(lambda q: quantile(entries, q[0]))(away)
    )


@pytest.mark.parametrize("how", ["lower", "higher", "nearest", "midpoint"])
def test_quantiles_that_jump_in_their_level_are_refused(how: str) -> None:
    level = numbers(0.25, 0.25, 0.25, 0.25) if how == "nearest" else numbers(0.5, 0.5, 0.5, 0.5)
    with pytest.raises(Refused, match="jumps"):
        subgrad.grad(lambda q: torch.quantile(numbers(0.0, 1.0, 3.0), q, interpolation=how).sum())(level)


CUT: dict[str, tuple[Function, complex]] = {
    **{name: (getattr(torch, name), -2.0) for name in ("angle", "log", "log2", "log10", "sqrt", "rsqrt", "log1p")},
    **{name: (getattr(torch, name), -2.0) for name in ("acos", "arccos", "asin", "acosh", "atanh")},
    **{f"{name} to the right": (getattr(torch, name), 3.0) for name in ("acos", "asin", "atanh")},
    "acosh inside": (torch.acosh, 0.5),
    "pow": (lambda z: z**0.5, -2.0),
    "pow of a tensor": (lambda z: torch.pow(z, torch.full_like(z.real, 1.5)), -2.0),
    "float_power": (lambda z: torch.float_power(z, 0.5), -2.0),
    "in place": (lambda z: z.clone().log_(), -2.0),
    **{name: (getattr(torch, name), 2j) for name in ("atan", "asinh")},
    **{f"{name} below": (getattr(torch, name), -2j) for name in ("atan", "asinh")},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", CUT)
def test_branch_cuts_are_taken_on_the_side_that_is_moved_to(kind: str, dtype: torch.dtype) -> None:
    """Times what vanishes there a jump becomes a kink."""
    function, centre = CUT[kind]

    def program(x: Tensor) -> Tensor:
        moved, other = x, torch.full_like(x, centre.real or centre.imag)
        z = torch.complex(moved, other) if centre.imag else torch.complex(other, moved)
        found = function(z)
        return ((found.real + 2 * found.imag) * x).sum() if found.is_complex() else (found * x * WEIGHTS.to(x)).sum()

    nearby = gradients_nearby(program, numbers(0.0, 0.0))
    for seed in range(4):
        found = subgrad.grad(program, seed=seed)(torch.zeros(2, dtype=dtype)).double()
        assert min((found - each).abs().max() for each in nearby) < 1e-3, (found, nearby[:3])


def test_branch_cuts_are_refused_where_they_end_and_where_the_program_jumps() -> None:
    with pytest.raises(Refused, match=r"log\(\) at .*test_unseen.py"):
        subgrad.grad(lambda x: torch.complex(x, x).log().real.sum())(numbers(0.0))
    with pytest.raises(Refused, match="jumps"):
        subgrad.grad(lambda x: torch.angle(torch.complex(-torch.ones_like(x), x)).sum())(numbers(0.0, 0.0, 0.0))


def test_along_a_branch_cut_nothing_jumps() -> None:
    function: Function = lambda x: (torch.sqrt(torch.complex(x, torch.zeros_like(x))).imag * WEIGHTS).sum() + x.abs().sum()  # noqa: E731
    found = subgrad.grad(function)(numbers(-4.0, -1.0))
    torch.testing.assert_close(found, torch.func.grad(function)(numbers(-4.0, -1.0)))


LISTS: dict[str, Function] = {
    "abs": lambda x: torch._foreach_abs([x, x[:1]])[0],
    "clamps": lambda x: torch._foreach_clamp_min([x], 0.0)[0] + torch._foreach_clamp_max([x], [0.0])[0],
    "in place": lambda x: in_place(torch._foreach_abs_, x),
    "maximum of tensors": lambda x: torch._foreach_maximum([x], [torch.zeros_like(x)])[0],
    "maximum of numbers": lambda x: torch._foreach_maximum([x, x], 0.0)[1],
    "minimum in place": lambda x: in_place(torch._foreach_minimum_, x, [0.0]),
    "sign": lambda x: torch._foreach_mul(torch._foreach_sign([x]), [x])[0],
    "norm": lambda x: torch._foreach_norm([x - 1, x], ord=1)[1] + x,
    "max": lambda x: torch._foreach_max([x])[0] + x,
    "powsum": lambda x: torch._foreach_powsum([x], 1)[0] + x if hasattr(torch, "_foreach_powsum") else x,
    "addcmul": lambda x: torch._foreach_addcmul([x], [x.abs()], [x + 1], [2.0])[0],
    "addcdiv with a tensor": lambda x: torch._foreach_addcdiv([x], [x.abs()], [x + 1], numbers(2.0))[0],
    "lerp": lambda x: torch._foreach_lerp([x], [x.abs()], 0.25)[0],
    "add with alpha": lambda x: torch._foreach_add([x], [x.abs()], alpha=3)[0],
    "public": lambda x: torch.foreach.abs([x])[0] if hasattr(torch, "foreach") else x.abs(),
    "public, in place": lambda x: in_place(torch.foreach.abs_, x) if hasattr(torch, "foreach") else x.abs(),
}


def in_place(function: Callable[..., object], x: Tensor, *others: object) -> Tensor:
    copied = x * 1
    function([copied], *others)
    return copied


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_tensors_are_what_their_tensors_are(kind: str) -> None:
    assert_found_nearby(lambda x: (LISTS[kind](x) * WEIGHTS).sum(), numbers(0.0, 0.0))




def run(name: str, given: list[Tensor], other: list[Tensor], third: list[Tensor]) -> object:
    function = getattr(torch, name)
    for args in ((given, other, third), (given, other), (given,)):
        try:
            return function(*args)
        except TypeError:
            continue
    raise AssertionError(f"{name} was called in no way that torch knows")


@pytest.mark.parametrize("name", [name for name in dir(torch) if name.startswith("_foreach_")])
def test_every_function_of_lists_has_the_value_and_the_gradient_of_torch_where_it_is_smooth(name: str) -> None:
    one, other, third = [numbers(0.3, 0.6), numbers(0.7)], [numbers(0.4, 0.2), numbers(0.9)], [numbers(1.1, 1.2), numbers(1.3)]
    if name == "_foreach_mm":
        one, other = [each.outer(each) for each in one], [each.outer(each) for each in other]

    def program(*tensors: Tensor) -> Tensor:
        given = [tensor * 1 for tensor in tensors]
        out = run(name, given, other, third)
        found = given if name.endswith("_") else list(out)  # type: ignore[call-overload]
        return torch.stack([(number + 2) * (each * (each + 1)).sum() for number, each in enumerate(found)]).sum()

    reached, found = subgrad.value_and_grad(program, argnums=(0, 1))(*one)
    expected, value = torch.func.grad_and_value(program, argnums=(0, 1))(*one)
    assert torch.equal(torch.as_tensor(reached), value)
    torch.testing.assert_close(found, expected)
