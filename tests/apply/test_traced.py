"""What records programs to run them later keeps a convention, or says that it does not: never lost in silence."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import subgrad

ONE = torch.ones(1)
OWN = subgrad.Convention("mean", relu=0.25)


def slope_at_zero(function: Callable[[Tensor], Tensor]) -> float:
    x = torch.zeros(1, requires_grad=True)
    return torch.autograd.grad(function(x), x, torch.full((1,), 4.0))[0].item() / 4


@pytest.mark.parametrize(("convention", "wanted"), [("right", 1.0), ("mean", 0.5), (OWN, 0.25)], ids=str)
def test_fx_keeps_modules_and_spelled_out_operators(convention: Any, wanted: float) -> None:
    module = subgrad.nn.ReLU(convention=convention)
    for each in (
        module,
        nn.Sequential(nn.Identity(), module),
        lambda x: subgrad.functional.relu(x, convention=convention),
    ):
        traced = torch.fx.symbolic_trace(each)
        assert slope_at_zero(traced) == wanted
        assert slope_at_zero(pickle.loads(pickle.dumps(traced))) == wanted


def chosen_inside(x: Tensor) -> Tensor:
    with subgrad.use("right"):
        return torch.relu(x)


RECORDERS: dict[str, Callable[[Any], Callable[[Tensor], Tensor]]] = {
    "make_fx": lambda function: make_fx(function)(ONE),
    "torch.jit.trace": lambda function: torch.jit.trace(function, ONE, check_trace=False),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_convention_inside_is_said_to_be_that_of_where_it_runs(recorder: str) -> None:
    with pytest.warns(UserWarning, match=f"right is put in force inside a function that {recorder} records"):
        recorded = RECORDERS[recorder](chosen_inside)
    for convention, wanted in (("left", 0.0), ("right", 1.0)):
        with subgrad.use(convention):
            assert slope_at_zero(recorded) == wanted


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("recorder", RECORDERS)
def test_so_is_that_of_a_module(recorder: str) -> None:
    with pytest.warns(UserWarning, match=f"right is put in force inside a function that {recorder} records"):
        RECORDERS[recorder](subgrad.nn.ReLU(convention="right"))


@pytest.mark.filterwarnings("error::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("recorder", [*RECORDERS, "symbolic_trace"])
def test_a_convention_around_needs_no_warning(recorder: str) -> None:
    with subgrad.use("right"):
        record = {**RECORDERS, "symbolic_trace": torch.fx.symbolic_trace}[recorder]
        assert slope_at_zero(record(lambda x: torch.relu(x))) == 1.0


@pytest.mark.filterwarnings("error::UserWarning")
def test_fx_keeps_a_convention_inside() -> None:
    graph = torch.fx.symbolic_trace(chosen_inside)
    for convention in ("left", "torch"):
        with subgrad.use(convention):
            assert slope_at_zero(graph) == 1.0


@pytest.mark.compiled
@pytest.mark.filterwarnings("error::UserWarning:subgrad")
def test_compiling_keeps_it_without_a_warning() -> None:
    assert slope_at_zero(torch.compile(chosen_inside, backend="aot_eager")) == 1.0
    spelled = torch.compile(lambda x: subgrad.functional.relu(x, convention="right"), backend="aot_eager")
    assert slope_at_zero(spelled) == 1.0
