"""Strategies for hypothesis: every kind of entry comes up, and what is found shrinks to the simplest on the kink."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from torch import Tensor

import subgrad
from subgrad.testing import gradcheck, tensors

SETTINGS = hypothesis.settings(database=None, derandomize=True, max_examples=2000, deadline=None)
QUICK = hypothesis.settings(database=None, derandomize=True, max_examples=50, deadline=None)
TINY = torch.finfo(torch.float64).smallest_normal


def simplest(condition: Callable[[Tensor], Any], *args: Any, **options: Any) -> Tensor:
    return hypothesis.find(tensors(*args, **options), lambda x: bool(condition(x)), settings=SETTINGS)


@pytest.mark.parametrize(
    ("condition", "shape", "expected"),
    [
        (lambda x: (x == 6).any(), None, 6.0),
        (lambda x: (x == 6).any(), 3, [0.0, 0.0, 6.0]),
        (lambda x: x.isnan().any(), None, float("nan")),
        (lambda x: (x == inf).any(), None, inf),
        (lambda x: ((x != 0) & (x.abs() < TINY)).any(), None, TINY / 2),
        (lambda x: ((x == 0) & x.signbit()).any(), None, -0.0),
        (lambda x: x.ndim and len(x.flatten()) > 1 and (x.flatten()[0] == x.flatten()[1]), 2, [0.0, 0.0]),
        (lambda x: (x[0] == x[1]) & (x[1] != 0), 3, [1.0, 1.0, 0.0]),
        (lambda x: (x > 2.5).any(), 2, [0.0, 3.0]),
    ],
)
def test_what_is_found_shrinks_to_the_simplest(condition: Callable[[Tensor], Any], shape: Any, expected: Any) -> None:
    found, wanted = simplest(condition, shape), torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit(), wanted.signbit()) or bool(wanted.isnan().any())


def test_a_kink_that_a_function_hides_is_landed_on() -> None:
    def hidden(x: Tensor) -> bool:  # the gradient is another under the other convention
        x = x.detach().requires_grad_()
        found = []
        for convention in ("torch-2.13", "torch-2.14"):
            with subgrad.use(convention):
                found.append(torch.autograd.grad(torch.clamp(x, 0.3, 7).sum(), x)[0])
        return not torch.equal(*found)

    found = simplest(hidden, breakpoints=(0.3, 7.0), nan=False)
    assert found.item() in (0.3, 7.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_beside_a_breakpoint_come_up_in_every_dtype(dtype: torch.dtype) -> None:
    above = torch.nextafter(torch.tensor(6.0, dtype=dtype), torch.tensor(inf, dtype=dtype))
    found = simplest(lambda x: (x == above).any(), dtype=dtype)
    assert (found.dtype, found.shape) == (dtype, ())
    assert torch.equal(found, above)


@QUICK
@given(tensors((2, 3), low=-1.0, high=6.0))
def test_bounds_hold(x: Tensor) -> None:
    assert x.shape == (2, 3)
    assert bool(((x >= -1) & (x <= 6)).all())


@QUICK
@given(tensors(4, nan=False, infinities=False, subnormals=False, dtype=torch.float32))
def test_what_is_left_out_does_not_come_up(x: Tensor) -> None:
    assert bool(x.isfinite().all())
    assert not bool(((x != 0) & (x.abs() < torch.finfo(torch.float32).smallest_normal)).any())


@QUICK
@given(tensors(2, low=0.2, high=0.25, beside=False, subnormals=False, dtype=torch.float32))
def test_bounds_may_leave_little(x: Tensor) -> None:
    assert bool(((x >= 0.2) & (x <= 0.25)).all())


@QUICK
@given(tensors(hypothesis.strategies.sampled_from([(), (2,), (1, 2)]), requires_grad=True))
def test_shapes_may_be_a_strategy(x: Tensor) -> None:
    assert tuple(x.shape) in ((), (2,), (1, 2))
    assert x.requires_grad


@QUICK
@given(tensors(3, low=-8.0, high=8.0, subnormals=False))
def test_they_drive_a_check_of_a_function_of_ones_own(x: Tensor) -> None:
    assert gradcheck(lambda x: torch.maximum(x, x.flip(0)).clamp(0, 6), x)


@pytest.mark.parametrize(("low", "high"), [(3.0, 2.0), (0.1, 0.1)])
def test_bounds_without_a_number_between_them_are_an_error(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=f"low={low}, high={high}: no number of torch.float32 lies between them."):
        tensors(low=low, high=high, dtype=torch.float32)


def test_a_dtype_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"dtype=torch.int64: give one of torch.float64, torch.float32"):
        tensors(dtype=torch.int64)
