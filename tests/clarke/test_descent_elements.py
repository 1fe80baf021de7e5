"""Which element `grad` returns: the extreme one of a direction, the least, or the mean; and line searches with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import subgrad
from clarke.test_least_elements import Convex, distance_to_hull

PROBLEMS = {each["name"]: each for each in json.loads((Path(__file__).parent / "nonsmooth_problems.json").read_text())}
TURN = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)


def maxq(x: Tensor) -> Tensor:
    return eval(PROBLEMS["MAXQ"]["code"], {"torch": torch, "x": x})


def ones() -> Tensor:
    return torch.ones(PROBLEMS["MAXQ"]["n"], dtype=torch.float64)


def with_lbfgs(element: str, steps: int = 5) -> float:
    x = ones().requires_grad_()
    optimizer = torch.optim.LBFGS([x], line_search_fn="strong_wolfe")
    differentiated = subgrad.value_and_grad(maxq, element=element)

    def closure() -> Tensor:
        value, x.grad = differentiated(x.detach())
        return value

    for _ in range(steps):
        optimizer.step(closure)  # type: ignore[arg-type]
    return float(maxq(x))


def with_backtracking(element: str, steps: int = 20) -> float:
    x, differentiated = ones(), subgrad.value_and_grad(maxq, element=element)
    for _ in range(steps):
        value, gradient = differentiated(x)
        size = 8.0
        while maxq(x - size * gradient) > value - 1e-4 * size * gradient.dot(gradient) and size > 1e-12:
            size /= 2
        if size > 1e-12:
            x = x - size * gradient
    return float(maxq(x))


@pytest.mark.parametrize("minimise", [with_lbfgs, with_backtracking])
def test_a_line_search_goes_on_with_the_least_element_and_the_mean_where_it_stalls_with_an_extreme_one(
    minimise: Callable[[str], float],
) -> None:
    assert minimise("clarke") == 1.0  # the value at the start: against one element of a tie there is no descent
    assert minimise("min-norm") < 1e-6
    assert minimise("mean") < 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_a_convex_function_falls_against_its_least_element(seed: int) -> None:
    function = Convex(seed)
    x = torch.zeros(function.size, dtype=torch.float64)
    value, least = subgrad.value_and_grad(function, element="min-norm")(x)
    found = subgrad.min_norm(function)(x)
    torch.testing.assert_close(least, found.element, atol=1e-11, rtol=1e-11)
    assert torch.equal(value, function(x))
    fall = float(function(x - 2.0**-20 * least) - value)
    assert fall == pytest.approx(-(2.0**-20) * found.norm**2, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_the_mean_is_that_of_the_elements_that_are_listed(seed: int) -> None:
    function = Convex(seed)
    x = torch.zeros(function.size, dtype=torch.float64)
    mean = subgrad.grad(function, element="mean")(x)
    listed = torch.stack([each.gradient for each in subgrad.elements(function, tries=256)(x)])  # in their order
    fewest = len(subgrad.elements(function, tries=32)(x))
    means = [listed[:number].mean(0) for number in range(fewest, len(listed) + 1)]
    assert any(torch.allclose(mean, each, atol=1e-11, rtol=1e-11) for each in means)
    assert distance_to_hull(mean.numpy(), function.vertices()) < 1e-9


@pytest.mark.parametrize("element", ["clarke", "min-norm", "mean"])
def test_where_there_is_no_kink_it_is_the_gradient_to_the_bit(element: str) -> None:
    x = torch.tensor([0.3, -1.7])
    f = lambda x: (x.sin() * x.abs()).sum()  # noqa: E731
    assert torch.equal(subgrad.grad(f, element=element)(x), torch.func.grad(f)(x))


@pytest.mark.parametrize("element", ["clarke", "min-norm", "mean"])
def test_trees_argnums_and_aux_are_as_for_every_element(element: str) -> None:
    def f(tree: dict[str, Any], y: Tensor) -> tuple[Tensor, str]:
        return (TURN @ tree["x"]).abs().sum() + y.abs().amax() + tree["b"][0], "seen"

    tree = {"x": torch.zeros(2).double(), "b": [torch.tensor(3.0)]}
    y = torch.tensor([1.0, -1.0])
    (value, aux), (first, second) = subgrad.value_and_grad(f, argnums=(0, 1), has_aux=True, element=element)(tree, y)
    assert (float(value), aux) == (4.0, "seen")
    assert first["b"][0] == 1
    assert (first["x"].dtype, second.dtype) == (torch.float64, torch.float32)
    wanted = {"min-norm": [0.5, -0.5], "mean": [0.5, -0.5]}
    if element in wanted:
        torch.testing.assert_close(first["x"], torch.zeros(2).double(), atol=1e-7, rtol=0)
        torch.testing.assert_close(second, torch.tensor(wanted[element]), atol=1e-6, rtol=0)


def test_where_a_program_overflows_a_line_search_gets_the_infinite_value() -> None:
    f = lambda x: (x.exp() + x.abs()).sum()  # noqa: E731
    value, _ = subgrad.value_and_grad(f, element="min-norm")(torch.tensor([1000.0, 0.0]))
    assert value == torch.inf


@pytest.mark.parametrize("function", [subgrad.grad, subgrad.value_and_grad])
def test_a_wrong_word_is_refused_with_the_right_ones(function: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"unknown element 'least'\..*Known: clarke, min-norm, mean\."):
        function(torch.sum, element="least")
