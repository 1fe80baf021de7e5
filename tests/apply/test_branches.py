"""Which overloads the kernels of passes are registered for."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import subgrad
from subgrad.apply.pass_kernels import forms
from subgrad.audit.recording import Recording
from subgrad.clarke.rules.rule_table import rules
from subgrad.kinks.overloads import overload

OPS = tuple(dict.fromkeys((*rules(), *Recording.rules)))


def test_no_overload_is_a_form_of_two_operators() -> None:
    counts = Counter(form for op in OPS for form in forms(op))
    assert not [form for form, count in counts.items() if count > 1]


def test_what_writes_into_self_takes_the_same_arguments() -> None:
    for op in OPS:
        wanted, *found = ([(each.name, str(each.type)) for each in overload(f)._schema.arguments] for f in forms(op))
        assert all(each == wanted for each in found), op


@pytest.mark.parametrize("power", [0.5, torch.tensor([0.5, 0.25])], ids=["number", "tensor"])
def test_a_power_in_place_is_seen_as_any_other(power: float | torch.Tensor) -> None:
    for function in (lambda x: (x**power).sum(), lambda x: (x * 1).pow_(power).sum()):
        with pytest.raises(subgrad.clarke.Refused, match="not Lipschitz"):
            subgrad.grad(function)(torch.zeros(2))
