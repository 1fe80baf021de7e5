"""A wrong decision is noticed where it stands, however large the call is and however little it adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.operator_certificate import MANY
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule
from subgrad.clarke.rules.max_pool import Pooled
from subgrad.clarke.rules.piecewise_linear import Bent
from subgrad.clarke.rules.pointwise import Pointwise

LARGE = 2 * MANY


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x.view(2, 16, 32, 32), 2)


def flipped_corners(rule: Bent, call: PassCall, branch: Tensor) -> Tensor:
    return torch.where(call.arguments["self"] == 0, 1 - branch, branch)


def flipped_ties(rule: Pointwise, call: PassCall, branch: list[Any]) -> list[Any]:
    for met in branch:
        met.weights.update({name: ~weight for name, weight in met.weights.items()})
    return branch


def first_of_windows(rule: Pooled, call: PassCall, branch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    tied, positions = branch
    assert tied is not None
    return tied, positions.flip(0)


CASES: dict[str, tuple[type[Rule], Callable[..., Any], Callable[[Tensor], Tensor]]] = {
    "relu": (Bent, flipped_corners, F.relu),
    "maximum": (Pointwise, flipped_ties, lambda x: torch.maximum(x, -x)),
    "maximum with rows": (Pointwise, flipped_ties, lambda x: torch.maximum(x.view(2, -1), -x[: LARGE // 2])),
    "max_pool2d": (Pooled, first_of_windows, pooled),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_wrong_decision_of_a_large_call_is_not_believed(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, wrong, operator = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(LARGE, dtype=dtype)
    x[1::2] = 0
    weights = torch.randn_like(operator(x))

    def program(x: Tensor) -> Tensor:
        return 1e-9 * (operator(x) * weights).sum() + x.sin().sum()  # so little that the sum does not show it

    assert not subgrad.element(program)(x).extrapolated
    decide = kind.decide

    def planted(self: Any, call: PassCall, at: Decide) -> Any:
        branch = decide(self, call, at)
        return branch if branch is None else wrong(self, call, branch)

    monkeypatch.setattr(kind, "decide", planted)
    assert subgrad.element(lambda x: program(x))(x).extrapolated  # without rules, since one was contradicted
