"""What reaches a mode is the whole call, though torch loses some arguments on the way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from subgrad.apply.lost_arguments import LOST, whole

X, WEIGHT = torch.tensor([1.0, -1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])
# `autograd.backward` passes the one on under the name of the other.
PASSED_ON = {("backward", "grad_variables")}


class Calls(TorchFunctionMode):
    """Calls everything again, whole."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = whole(func, args, kwargs)
        return func(*args, **kwargs)


class CallsAsGiven(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_l1_loss_keeps_its_weight(reduction: str) -> None:
    wanted = F.l1_loss(X, torch.zeros(3), reduction=reduction, weight=WEIGHT)
    with Calls():
        found = F.l1_loss(X, torch.zeros(3), reduction=reduction, weight=WEIGHT)
        layer = torch.nn.L1Loss(reduction=reduction)(X, torch.zeros(3))
    assert torch.equal(found, wanted)
    assert torch.equal(layer, torch.nn.L1Loss(reduction=reduction)(X, torch.zeros(3)))


def test_l1_loss_keeps_its_weight_under_two_modes() -> None:
    with Calls(), Calls():
        found = F.l1_loss(X, torch.zeros(3), weight=WEIGHT)
    assert torch.equal(found, F.l1_loss(X, torch.zeros(3), weight=WEIGHT))


def test_a_weight_given_by_position_is_kept() -> None:
    with Calls():
        found = F.l1_loss(X, torch.zeros(3), None, None, "mean", WEIGHT)
    assert torch.equal(found, F.l1_loss(X, torch.zeros(3), weight=WEIGHT))


def test_a_mode_that_calls_with_a_weight_of_its_own_is_obeyed() -> None:
    class Halves(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _, given = whole(func, args, kwargs)
            return func(*args, **({**given, "weight": given["weight"] / 2} if func is F.l1_loss else given))

    with Calls(), Halves():
        found = F.l1_loss(X, torch.zeros(3), reduction="sum", weight=WEIGHT)
    assert torch.equal(found, F.l1_loss(X, torch.zeros(3), reduction="sum", weight=WEIGHT / 2))


def test_dim_order_keeps_its_check() -> None:
    ambiguous = torch.ones(1, 1)
    with Calls(), pytest.raises(RuntimeError, match="unique dim order"):
        ambiguous.dim_order(ambiguity_check=True)


def test_torch_still_loses_what_is_listed() -> None:
    with CallsAsGiven():
        found = F.l1_loss(X, torch.zeros(3), weight=WEIGHT)
    if torch.equal(found, F.l1_loss(X, torch.zeros(3), weight=WEIGHT)):
        pytest.skip("this torch passes the weight on")
    assert torch.equal(found, F.l1_loss(X, torch.zeros(3)))


def forgotten() -> Iterator[tuple[str, str]]:
    """Functions in torch's sources, and parameters that they do not hand on to `handle_torch_function`."""
    for path in Path(torch.__file__).parent.rglob("*.py"):
        source = path.read_text(errors="replace")
        if "handle_torch_function" not in source:
            continue
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("handle_torch_function"):
                    yield from ((function.name, name) for name in _not_handed_on(function, call))


def _not_handed_on(function: ast.FunctionDef, call: ast.Call) -> list[str]:
    given, keywords = call.args[2:], [keyword.arg for keyword in call.keywords]
    if None in keywords or any(isinstance(each, ast.Starred) for each in given):
        return []  # all of them
    positional = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    parameters = [*positional, *(each.arg for each in function.args.kwonlyargs)]
    return [name for name in parameters if name not in (*positional[: len(given)], *keywords)]


def test_nothing_else_is_lost_in_this_torch() -> None:
    known = {(func.__name__, name) for func, names in LOST.items() for name in names}
    assert set(forgotten()) - PASSED_ON <= known


def test_the_reading_of_sources_sees_what_is_lost() -> None:
    assert ("dim_order", "ambiguity_check") in set(forgotten())
    assert Tensor.dim_order in LOST
