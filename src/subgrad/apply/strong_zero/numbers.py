"""Products and quotients with numbers: a kernel in Python is given numbers where torch's own takes tensors only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, below_autograd, outer_levels, through
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.dispatcher import DispatchKey, allows_numbers_as_tensors
from subgrad.torch_internals.transforms import len_dispatch_stack

Kernel = Callable[..., Any]


def taking_numbers(form: str, original_of: Callable[[str], Kernel]) -> Kernel:
    """Torch's own kernel of an overload, which also takes numbers if the overload does."""
    original = original_of(form)
    name, _, kind = form.partition(".")
    if not allows_numbers_as_tensors(name.rstrip("_")) or not kind.startswith("Tensor"):
        return original
    by_number = original_of(f"{name}.{kind.replace('Tensor', 'Scalar')}")

    def kernel(keyset: Any, self: Any, other: Any, **kwargs: Any) -> Any:
        if keyset.has(DispatchKey.ZeroTensor) and not isinstance(other, Tensor):
            other = _as_tensor(other, self)  # the other overload has no kernel there, and these keys do not say so
        if isinstance(other, Tensor):
            return original(keyset, self if isinstance(self, Tensor) else _as_tensor(self, other), other, **kwargs)
        # What watches or records operators is to see the overload that was called.
        if len_dispatch_stack() and not name.endswith("_"):
            return _recorded(form, self, other, **kwargs)
        return by_number(keyset, self, other, **kwargs)

    return kernel


def _as_tensor(number: Any, beside: Tensor) -> Tensor:
    """A number as a tensor that does not change the type of the result, and is not rounded beside entries."""
    dtype = torch.result_type(beside, number)
    is_kept = beside.ndim and beside.dtype == dtype and dtype.is_floating_point
    return torch.tensor(number, dtype=torch.float64 if is_kept else dtype)


def _recorded(form: str, x: Tensor, number: Any, **kwargs: Any) -> Tensor:
    value = below_autograd(lambda: overload(form)(x, number, **kwargs))
    is_rounded = kwargs.get("rounding_mode") is not None
    return through(_ByNumber, x, value, number, form.partition(".")[0], is_rounded)


class _ByNumber(Gate):
    """A product or quotient with the derivative that torch gives it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, number: Any, name: str, is_rounded: bool) -> Tensor:
        ctx.number, ctx.is_product, ctx.is_rounded, ctx.is_complex = number, name == "mul", is_rounded, x.is_complex()
        with outer_levels():
            return alias(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        number = ctx.number.conjugate() if isinstance(ctx.number, complex) else ctx.number
        gradient = _scaled(ctx, cotangent, number)
        return (gradient if ctx.is_complex or not gradient.is_complex() else gradient.real), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _scaled(ctx, tangent, ctx.number)


def _scaled(ctx: Any, vector: Tensor, number: Any) -> Tensor:
    if ctx.is_rounded:
        return torch.zeros_like(vector)
    return vector * number if ctx.is_product else vector / number
