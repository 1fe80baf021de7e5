"""Packed masks are for operators that would keep their input; those that keep their result have no kernel of ours."""

from __future__ import annotations

import pytest
import torch
from fresh import run_fresh
from torch import Tensor

from subgrad.apply.operators import operator
from subgrad.kernels.cuda_bitmask import keeps_result
from subgrad.kernels.native import build
from subgrad.kernels.piecewise import STRAIGHT
from subgrad.kinks.overloads import overload

FORMS = [form for op in STRAIGHT for form in (op, operator(op).in_place) if form]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_said_to_be_kept_is_what_autograd_saves(form: str) -> None:
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    called = overload(form)
    numbers = [1.0 if each.default_value is None else each.default_value for each in called._schema.arguments[1:]]
    x = torch.randn(8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        given = x * 1.0
        saved.clear()
        out = called(given, *numbers)
    assert len(saved) == 1
    is_in_place = form != form.rstrip("_")
    result_is_saved = torch.equal(saved[0], out) and not torch.equal(x, out)
    if not is_in_place:
        result_is_saved = saved[0].data_ptr() == out.data_ptr()
    assert keeps_result(form) == result_is_saved


PROGRAM = """
import subgrad
from subgrad.apply import dispatch
with subgrad.use("min-norm"):
    print(("AutogradCUDA", "relu") in dispatch.registered.forms, ("AutogradCUDA", "abs") in dispatch.registered.forms)
    subgrad.kernels.set_packed("always")
    print(("AutogradCUDA", "relu") in dispatch.registered.forms, ("AutogradCUDA", "abs") in dispatch.registered.forms)
"""


@pytest.mark.parametrize("front", ["never", "auto"])
def test_what_gains_nothing_has_no_kernel_unless_it_is_asked_for(front: str) -> None:
    """`abs` would keep its input: a mask gains where the C++ part launches it, not where Python does."""
    done = run_fresh(PROGRAM, SUBGRAD_FRONT=front)
    gains = str(front == "auto" and build.library().exists())
    assert done.stdout.split() == ["False", gains, "True", "True"], done.stderr
