"""Moved bounds give the values and gradients of the plain rule to the bit, for every number of 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from kernels.calls import CONVENTIONS, DTYPES, assert_same_bits, cotangent, every_number
from torch import Tensor

import subgrad
from subgrad.apply.operators import operator
from subgrad.apply.plan import plan
from subgrad.conventions import Convention, convention
from subgrad.kernels.nudged import moved_bounds, nudged, nudged_in_place

BOUNDS = [("clamp", (-1.0, 2.0)), ("clamp", (-0.0, None)), ("clamp", (None, 0.25)), ("clamp", (0.0, 6.0)),
          ("clamp", (0.5, 0.5)), ("clamp", (-0.1, 0.7)), ("clamp", (float("-inf"), 256.0)),
          ("clamp_min", (0.0,)), ("clamp_max", (0.5,))]  # fmt: skip


def originals(op: str, args: Sequence[Any]) -> Tensor:
    return getattr(args[0], op)(*args[1:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op", "bounds"), BOUNDS)
def test_every_number_under_every_convention(op: str, bounds: tuple[Any, ...], dtype: torch.dtype) -> None:
    were_moved = 0
    for like in map(convention, CONVENTIONS):
        x = every_number(dtype, "cpu").requires_grad_()
        given = operator(op).bind((x, *bounds), {})
        moved = moved_bounds(plan(operator(op), like, given), given)
        if moved is None:
            continue
        were_moved += moved != bounds
        with subgrad.use(like):
            plain = getattr(x, op)(*bounds)
        copy = x.clone()
        in_place = nudged_in_place(op, moved, {**given, "self": copy}, originals)
        assert in_place is copy
        for found in (nudged(op, moved, given, originals), in_place):
            assert_same_bits(found, plain)
            pair = (torch.autograd.grad(y, x, cotangent(y), retain_graph=True)[0] for y in (found, plain))
            assert_same_bits(*pair)
    assert were_moved or bounds in ((-0.1, 0.7), (0.5, 0.5), (float("-inf"), 256.0))


def test_other_weights_move_no_bound() -> None:
    given = operator("clamp").bind((torch.zeros(3, requires_grad=True), 0.0, 6.0), {})
    for like in (Convention("mean"), Convention("torch", clamp=0.25)):
        assert moved_bounds(plan(operator("clamp"), like, given), given) is None
