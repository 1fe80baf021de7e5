"""Torch's own `gradcheck` and `gradgradcheck`: what is left to them, and what derivatives must be besides right.

That a derivative can be batched, takes undefined cotangents, repeats itself and has the right dtype can be asked at a
kink as well. There torch's difference quotients say nothing; so the function is held at the point, and no difference to
a quotient counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from subgrad.apply.scopes import active
from subgrad.testing.inputs import Inputs, is_number
from subgrad.torch_internals.transforms import pytree

Function = Callable[..., Any]
NUMBERS = {"eps": 1e-6, "atol": 1e-5, "rtol": 1e-3}


def are_left_to_torch(inputs: Inputs) -> bool:
    return any(each.is_complex() or each.layout is not torch.strided for each in inputs.tensors)


def wholly(func: Function, inputs: Inputs, numbers: dict[str, float | None], **options: Any) -> None:
    """Torch's own check, values included."""
    chosen = {name: NUMBERS[name] if number is None else number for name, number in numbers.items()}
    gradcheck(*_flat(func, inputs), **chosen, **options)  # type: ignore[arg-type]


def wholly_second(
    func: Function, inputs: Inputs, grad_outputs: Any, numbers: dict[str, float | None], **options: Any
) -> None:
    chosen = {name: NUMBERS[name] if number is None else number for name, number in numbers.items()}
    gradgradcheck(*_flat(func, inputs), grad_outputs, **chosen, **options)  # type: ignore[arg-type]


def besides_values(func: Function, inputs: Inputs, forward: bool, check_backward_ad: bool, **options: Any) -> None:
    """All but the values; each mode by itself.

    At a kink, conventions take the element of what is differentiated: in forward mode of what has a tangent. So there
    a tangent that is missing is another thing than one that is zero, unless the elements are torch's own.
    """
    batched = options.pop("check_batched_forward_grad")
    with _unwarned():
        held = _held(*_flat(func, inputs))
        if check_backward_ad:
            gradcheck(*held, atol=inf, fast_mode=True, **options)
        if forward:
            options |= {"check_undefined_grad": options["check_undefined_grad"] and not active().interferes}
            options |= {"check_forward_ad": True, "check_backward_ad": False, "check_batched_grad": False}
            gradcheck(*held, atol=inf, fast_mode=True, check_batched_forward_grad=batched, **options)


def besides_values_second(func: Function, inputs: Inputs, grad_outputs: Any, **options: Any) -> None:
    with _unwarned():
        gradgradcheck(*_held(*_flat(func, inputs)), grad_outputs, atol=inf, fast_mode=True, **options)


def _flat(func: Function, inputs: Inputs) -> tuple[Function, tuple[Tensor, ...]]:
    """A function of the tensors that are differentiated alone, which returns a tuple of tensors; and these."""
    tensors = tuple(each.detach().clone().requires_grad_() for each in inputs.tensors)

    def flat(*given: Tensor) -> Tensor | tuple[Tensor, ...]:
        found = func(*inputs.arguments(given))
        return found if isinstance(found, Tensor) else tuple(filter(is_number, pytree.tree_leaves(found)))

    return flat, tensors


def _held(func: Function, tensors: tuple[Tensor, ...]) -> tuple[Function, tuple[Tensor, ...]]:
    """The function with its derivatives, and always its values at the point."""
    kept = [each.detach().clone() for each in tensors]
    return lambda *given: func(*map(_Held.apply, given, kept)), tensors


class _Held(torch.autograd.Function):
    """A constant with the derivative of the identity."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kept: Tensor) -> Tensor:
        return kept.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:  # type: ignore[override]
        return tangent.clone()


@contextmanager
def _unwarned() -> Iterator[None]:
    """Without torch's warning of inputs that are not in double precision: its quotients are not used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Input #")
        yield
