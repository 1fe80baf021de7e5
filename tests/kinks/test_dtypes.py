"""Corners lie where torch bends in each dtype: at bounds that the dtype cannot hold, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import subgrad
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload, with_defaults
from subgrad.kinks.rounded import rounded
from subgrad.kinks.sets import Slopes

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Every corner whose place is an argument, at a number; with the slope of the forward function on both sides.
PLACED: dict[str, Callable[[float], tuple[str, dict[str, Any]]]] = {
    "clamp, lower": lambda at: ("clamp", {"min": at, "max": at + 1}),
    "clamp, upper": lambda at: ("clamp", {"min": at - 1, "max": at}),
    "clamp, lower alone": lambda at: ("clamp", {"min": at}),
    "clamp, upper alone": lambda at: ("clamp", {"max": at}),
    "clamp_min": lambda at: ("clamp_min", {"min": at}),
    "clamp_max": lambda at: ("clamp_max", {"max": at}),
    "hardtanh, lower": lambda at: ("hardtanh", {"min_val": at, "max_val": at + 1}),
    "hardtanh, upper": lambda at: ("hardtanh", {"min_val": at - 1, "max_val": at}),
    "threshold": lambda at: ("threshold", {"threshold": at, "value": at}),
    "softshrink, upper": lambda at: ("softshrink", {"lambd": at}),
}
NUMBERS = st.floats(0.01, 3.0)
EPS = st.floats(0.01, 0.45)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def around(place: float, dtype: torch.dtype, steps: int = 4) -> Tensor:
    """The nearest entry of the dtype and its neighbours, in their order."""
    found = [torch.tensor(place, dtype=dtype)]
    for _ in range(steps):
        below, above = (torch.tensor(side * torch.inf, dtype=dtype) for side in (-1, 1))
        found = [torch.nextafter(found[0], below), *found, torch.nextafter(found[-1], above)]
    return torch.stack(found)


def hits(op: str, call: dict[str, Any], x: Tensor) -> list[int]:
    """Which entries the table has on a corner of an operator."""
    arguments = with_defaults(op, {"self": x, **call})
    corners = [kink for kink in KINKS.of_overload(op) if isinstance(kink.set, Slopes) and kink.applies(arguments)]
    met = torch.stack([kink.hits(arguments) for kink in corners]).any(0)
    return met.nonzero().flatten().tolist()


def compares_in_float32(dtype: torch.dtype) -> bool:
    """Whether softshrink does not round its bound to 16 bits, where 0.3 becomes a little more."""
    return bool(torch.nn.functional.softshrink(torch.tensor(0.3, dtype=dtype), 0.3) != 0)


def test_every_corner_at_an_argument_is_tried() -> None:
    placed = {kink.op for kink in KINKS if isinstance(kink.set, Slopes) and kink.at.lstrip("-").isidentifier()}
    assert placed - {"logit"} == {make(0.5)[0] for make in PLACED.values()}


@every_dtype
@pytest.mark.parametrize("name", PLACED)
@settings(max_examples=25, deadline=None)
@given(at=NUMBERS)
def test_a_corner_is_the_entry_where_the_values_bend(name: str, dtype: torch.dtype, at: float) -> None:
    op, call = PLACED[name](at)
    if op == "softshrink" and compares_in_float32(dtype):
        pytest.skip("torch 2.11 on the CPU: the corner lies between two entries of 16 bits")
    x = around(at, dtype)
    y = overload(op)(x, **call)
    slopes = y.double().diff() / x.double().diff()  # 0 or 1 to the bit: nothing is rounded near the bound
    assert set(slopes.tolist()) == {0.0, 1.0}
    (last_before,) = slopes.diff().nonzero().flatten().tolist()
    assert hits(op, call, x) == [last_before + 1]


@every_dtype
@settings(max_examples=60, deadline=None)
@given(eps=EPS)
def test_the_corners_of_logit_are_the_entries_where_torchs_own_comparison_switches(
    dtype: torch.dtype, eps: float
) -> None:
    for place in (eps, 1 - eps):
        x = around(place, dtype, 6)
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(torch.logit(leaf, eps).sum(), leaf)
        inside = gradient.nonzero().flatten()  # torch passes the gradient at the bounds
        assert hits("logit", {"eps": eps}, x) == [int(inside[0] if place == eps else inside[-1])]


@every_dtype
@settings(max_examples=40, deadline=None)
@given(eps=EPS)
def test_conventions_change_logit_at_its_corners_alone(dtype: torch.dtype, eps: float) -> None:
    x = torch.cat([around(eps, dtype), around(1 - eps, dtype)])
    cotangent = torch.linspace(-2, 3, len(x)).to(dtype)
    found = {}
    for convention in ("torch", "min-norm"):
        leaf = x.clone().requires_grad_()
        with subgrad.use(convention):
            out = torch.logit(leaf, eps)
        assert torch.equal(out, torch.logit(x, eps))
        (found[convention],) = torch.autograd.grad(out, leaf, cotangent)
    corners = hits("logit", {"eps": eps}, x)
    assert len(corners) == 2
    wanted = found["torch"].clone()
    wanted[corners] = 0
    assert torch.equal(found["min-norm"], wanted)


def test_the_upper_corner_of_logit_is_met_by_a_program() -> None:
    eps = 0.3121475306187805  # 1 - eps is another number in double precision, rounded to float32
    upper = (torch.tensor(1.0) - torch.tensor(eps)).reshape(1)
    found = {each.gradient.item() > 1 for each in subgrad.elements(lambda x: torch.logit(x, eps).sum())(upper)}
    assert found == {True, False}


@pytest.mark.parametrize("op", ["clamp", "hardtanh"])
@pytest.mark.parametrize("convention", ["right", "left", "mean", "min-norm"])
def test_bounds_that_a_dtype_cannot_tell_apart_let_nothing_through(op: str, convention: str) -> None:
    low, high = 0.7, 0.70001  # one number in 16 bits: a constant function
    x = around(low, torch.float16).requires_grad_()
    with subgrad.use(convention):
        out = overload(op)(x, low, high)
    assert len(set(out.tolist())) == 1
    (gradient,) = torch.autograd.grad(out, x, torch.linspace(1, 3, len(x)).half())
    assert not gradient.any()


@every_dtype
@settings(max_examples=300, deadline=None)
@given(number=st.floats(allow_nan=False))
def test_numbers_are_rounded_as_torch_rounds_them(dtype: torch.dtype, number: float) -> None:
    assert rounded(number, dtype) == torch.tensor(number, dtype=torch.float64).float().to(dtype).item() or (
        dtype == torch.float64 and rounded(number, dtype) == number
    )
