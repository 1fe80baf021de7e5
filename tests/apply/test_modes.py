"""Every way in which torch differentiates gives the chosen element, and the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import oracle
import pytest
import torch
from rows import Spot, corners_and_ties
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import subgrad
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload, tensor_names
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Ball

CONVENTIONS = ("min-norm", "documented", "left", "right", "mean")
ROUNDED = 2e-3  # the oracle rounds, since smooth parts bend a little between its points

Function = Callable[..., Tensor]


def differentiable(call: dict[str, Any]) -> list[str]:
    return [name for name, value in call.items() if isinstance(value, Tensor) and name not in ("noise", "weight")]


def function_of(op: str, call: dict[str, Any], names: Sequence[str]) -> Function:
    return lambda *tensors: overload(op)(**{**call, **dict(zip(names, tensors, strict=True))})


def gradients(function: Function, inputs: Sequence[Tensor], cotangent: Tensor) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    return list(torch.autograd.grad(function(*leaves), leaves, cotangent))


def cotangent_like(tensor: Tensor) -> Tensor:
    """Neither constant nor symmetric."""
    return torch.linspace(-1.5, 2.75, tensor.numel(), dtype=tensor.dtype).reshape(tensor.shape)


# The element, against what the forward function shows.


@pytest.mark.parametrize("alone", [False, True], ids=["all", "first"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("spot", [spot for spot in corners_and_ties() if not isinstance(spot.kink.set, Ball)], ids=str)
def test_reverse_mode_takes_the_element_that_the_definition_asks_for(spot: Spot, convention: str, alone: bool) -> None:
    names = spot.kink.set.candidates[:1] if alone else spot.operands
    wanted = oracle.element(convention, spot.forward, spot.point(), spot.operands, names)
    tensors = tensor_names(spot.kink.op)
    # Three times the same place: the cotangents differ, the element may not.
    call = {
        name: torch.full((3,), float(value), dtype=torch.float64) if name in tensors and value is not None else value
        for name, value in spot.numbers.items()
    }
    cotangent = torch.tensor([3.0, -0.5, 2.0], dtype=torch.float64)
    with subgrad.use(convention):
        found = gradients(function_of(spot.kink.op, call, names), [call[name] for name in names], cotangent)
    for name, gradient in zip(names, found, strict=True):
        torch.testing.assert_close(gradient, wanted[name] * cotangent, atol=3 * ROUNDED, rtol=ROUNDED)


@pytest.mark.parametrize(
    ("convention", "wanted"), [("min-norm", (0, 0)), ("left", (-1, 0)), ("right", (1, 0)), ("mean", (0, 0))]
)
def test_a_norm_at_zero_takes_its_element(convention: str, wanted: tuple[int, int]) -> None:
    zero, cotangent = torch.zeros(2), torch.tensor([3.0, -0.5])
    with subgrad.use(convention):
        found = gradients(torch.hypot, [zero, zero], cotangent)
    assert [each.tolist() for each in found] == [(weight * cotangent).tolist() for weight in wanted]


def refusal_of(attempt: Callable[..., object], *args: object) -> str:
    """What plain torch cannot do is not asked of a convention: no batching rule, no second derivative."""
    try:
        attempt(*args)
    except RuntimeError as refusal:
        return f"torch itself: {str(refusal).splitlines()[0]}"
    return ""


# The modes, against reverse mode on whole samples: hits of every kink, and entries beside them.


def cases(op: str) -> Iterator[tuple[dict[str, Any], Function, list[Tensor], Tensor]]:
    """Each sample, as a function of what is differentiated, and a cotangent."""
    for call in samples(op):
        if not call.get("training"):  # there the slopes are drawn anew in each call
            names = differentiable(call)
            inputs = [call[name] for name in names]
            yield call, function_of(op, call, names), inputs, cotangent_like(inputs[0])


@cache
def refusals(mode: Callable[..., object], op: str) -> tuple[str, ...]:
    """Of plain torch, for each sample: asked once for all conventions."""
    return tuple(refusal_of(mode, *case) for _, *case in cases(op))


def reverse_and(mode: Callable[[Function, list[Tensor], Tensor], list[Tensor]], op: str, convention: str) -> None:
    for (_, function, inputs, cotangent), refusal in zip(cases(op), refusals(mode, op), strict=True):
        if refusal:
            continue
        with subgrad.use(convention):
            expected = gradients(function, inputs, cotangent)
            torch.testing.assert_close(mode(function, inputs, cotangent), expected, rtol=1e-14, atol=0, equal_nan=True)
    skip_if_all(refusals(mode, op))


def skip_if_all(refused: Sequence[str]) -> None:
    """Where torch refuses every sample there was nothing to check."""
    if refused and all(refused):
        pytest.skip(refused[0])


def by_func_grad(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    return list(grad(lambda *args: (function(*args) * cotangent).sum(), argnums=tuple(range(len(inputs))))(*inputs))


def by_func_vjp(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    return list(vjp(function, *inputs)[1](cotangent))


def by_jacrev(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    return [cotangent @ jacobian for jacobian in jacrev(function, argnums=tuple(range(len(inputs))))(*inputs)]


def by_jacfwd(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    # Along one argument after the other; all of them carry tangents, as all of them count as differentiated.
    jacobians = jacfwd(lambda args: function(*args))(tuple(inputs))
    return [cotangent @ jacobian for jacobian in jacobians]


def by_func_jvp(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    """For operators that act entry by entry, a tangent in one argument shows that argument's derivative."""
    zeros = [torch.zeros_like(each) for each in inputs]
    directions = [[*zeros[:i], cotangent, *zeros[i + 1 :]] for i in range(len(inputs))]
    return [jvp(function, tuple(inputs), tuple(direction))[1] for direction in directions]


def by_dual_numbers(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    found = []
    for position in range(len(inputs)):
        with forward_ad.dual_level():
            tangents = [cotangent if i == position else torch.zeros_like(cotangent) for i in range(len(inputs))]
            duals = [forward_ad.make_dual(*pair) for pair in zip(inputs, tangents, strict=True)]
            found.append(forward_ad.unpack_dual(function(*duals)).tangent.clone())
    return found


def by_vmapped_grad(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    def one_entry(weight: Tensor, *args: Tensor) -> Tensor:
        return function(*args) * weight

    return list(vmap(grad(one_entry, argnums=tuple(range(1, len(inputs) + 1))))(cotangent, *inputs))


def by_grad_of_vmap(function: Function, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    return by_func_grad(vmap(function), inputs, cotangent)


WHOLE = [by_func_grad, by_func_vjp, by_jacrev, by_jacfwd, by_func_jvp, by_dual_numbers]


@pytest.mark.parametrize("mode", WHOLE)
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("op", KINKS.entrywise)
def test_every_mode_agrees_with_reverse_mode(op: str, convention: str, mode: Callable[..., list[Tensor]]) -> None:
    reverse_and(mode, op, convention)


# prelu's weight and rrelu's noise belong to the whole sample; vmap would need them entry by entry.
ENTRYWISE = [op for op in KINKS.entrywise if op not in ("_prelu_kernel", "rrelu_with_noise")]


@pytest.mark.parametrize("mode", [by_vmapped_grad, by_grad_of_vmap])
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("op", ENTRYWISE)
def test_vmap_agrees_with_reverse_mode(op: str, convention: str, mode: Callable[..., list[Tensor]]) -> None:
    reverse_and(mode, op, convention)


# Second order.


def twice(function: Function, inputs: list[Tensor], weights: Tensor) -> list[list[Tensor]]:
    """Second derivatives of the weighted square by two reverse passes."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    first = torch.autograd.grad((function(*leaves) ** 2 * weights).sum(), leaves, create_graph=True)
    return [
        list(torch.autograd.grad(each.sum() + 0 * leaves[0].sum(), leaves, retain_graph=True, materialize_grads=True))
        for each in first
    ]


def diagonals(matrices: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    return [[matrix.diagonal() for matrix in row] for row in matrices]


def square_of(function: Function, weights: Tensor) -> Function:
    return lambda *args: (function(*args) ** 2 * weights).sum()


@cache
def refusals_of_second_derivatives(op: str) -> tuple[str, ...]:
    found = []
    for _, function, inputs, weights in cases(op):
        square = square_of(function, weights)
        found.append(refusal_of(hessian(square, argnums=tuple(range(len(inputs)))), *inputs))
        if not found[-1] and any(entry.isnan().any() for row in twice(function, inputs, weights) for entry in row):
            found[-1] = "torch itself: a second derivative is nan"  # copysign at 0, logit beyond its bounds
    return tuple(found)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("op", KINKS.entrywise)
def test_second_derivatives_follow_from_the_same_element_in_every_order(op: str, convention: str) -> None:
    refused = refusals_of_second_derivatives(op)
    for (call, function, inputs, weights), refusal in zip(cases(op), refused, strict=True):
        if refusal:
            continue
        square, every = square_of(function, weights), tuple(range(len(inputs)))
        with subgrad.use(convention):
            expected = twice(function, inputs, weights)
            slopes = gradients(function, inputs, torch.ones_like(weights))
            for found in (
                hessian(square, argnums=every)(*inputs),
                jacrev(jacrev(square, argnums=every), argnums=every)(*inputs),
                jacrev(jacfwd(square, argnums=every), argnums=every)(*inputs),
            ):
                torch.testing.assert_close(diagonals(found), expected, rtol=1e-12, atol=1e-14)
        # At a hit the function counts as linear, so that the square bends by twice the product of the weights.
        bent = [[2 * weights * one * other for other in slopes] for one in slopes]
        for kink in KINKS.of_overload(op):
            if kink.applies(call) and op not in ("elu", "celu", "selu", "hardswish", "special_i0e", "logit"):
                hits = kink.hits(call)
                for row, wanted in zip(expected, bent, strict=True):
                    torch.testing.assert_close([each[hits] for each in row], [each[hits] for each in wanted])
    skip_if_all(refused)
