"""The value of an operator with a derivative that has been decided, in forward and in reverse mode."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor, strided
from torch.autograd import forward_ad

from subgrad.apply.autograd_nodes import Gate, alias, through
from subgrad.torch_internals.autograd import below_autograd_and_views as values
from subgrad.torch_internals.autograd import forward_level, load_forward_formulas, make_dual, unpack_dual

__all__ = [
    "carries_tangents",
    "carries_tangents_alone",
    "carrying_tangents",
    "dual",
    "load_formulas",
    "parts",
    "tangent",
    "valued",
    "values",
    "weighted",
    "with_tangent",
]


@cache
def load_formulas() -> None:
    """Those that torch has written in Python, in a module that torch itself warns of when it is imported."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.\w+. is (deprecated|not supported)")
        load_forward_formulas()


class _Here(threading.local):
    carries = False  # tangents
    records = False  # a graph, besides


_here = _Here()
_one_at_a_time = threading.RLock()


@contextmanager
def carrying_tangents(and_a_graph: bool = False) -> Iterator[None]:
    """Forward mode in this thread. Torch has one level of it for the whole process: threads wait for each other."""
    load_formulas()
    with _one_at_a_time, forward_ad.dual_level():
        _here.carries, _here.records = True, and_a_graph
        try:
            yield
        finally:
            _here.carries = _here.records = False


def carries_tangents() -> bool:
    return _here.carries


def carries_tangents_alone() -> bool:
    return _here.carries and not _here.records


def tangent(tensor: Any) -> Tensor | None:
    """What a tensor carries in the tangent pass."""
    if not _here.carries or not isinstance(tensor, Tensor) or tensor.layout is not strided:
        return None
    return unpack_dual(tensor, level=forward_level())[1]


def parts(tensor: Tensor) -> tuple[Tensor, Tensor | None]:
    """The value of a tensor, and its tangent."""
    return unpack_dual(tensor, level=forward_level())


def with_tangent(value: Tensor, found: Tensor) -> Tensor:
    if found.shape != value.shape:
        found = found.expand(value.shape)
    return dual(value, found if found.dtype == value.dtype else found.to(value.dtype))


def dual(value: Tensor, ahead: Tensor) -> Tensor:
    return make_dual(value, ahead, level=forward_level())


def valued(derivative: Tensor, value: Tensor) -> Tensor:
    """The derivative of one tensor with the value of another."""
    if carries_tangents_alone():
        found = tangent(derivative)
        return value if found is None else with_tangent(value, found)
    return through(_Weighted, alias(value), (None,), derivative)


def weighted(value: Tensor, operands: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """A value whose derivative is the sum of the operands' with weights entry by entry; all have one shape."""
    if carries_tangents_alone():
        moved = [(tangent(operand), weight) for operand, weight in zip(operands, weights, strict=True)]
        terms = [_times(found, weight) for found, weight in moved if found is not None]
        return with_tangent(value, sum(terms[1:], terms[0])) if terms else value
    return through(_Weighted, alias(value), tuple(weights), *operands)


def _times(vector: Tensor, weight: Tensor | None) -> Tensor:
    return vector if weight is None else vector * weight


class _Weighted(Gate):
    """A value with the derivatives of its operands, weighted."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weights: tuple[Tensor | None, ...], *operands: Tensor) -> Tensor:
        ctx.save_for_backward(*weights)
        ctx.save_for_forward(*weights)
        return alias(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *(_times(cotangent, weight) for weight in ctx.saved_tensors))

    @staticmethod
    def jvp(ctx: Any, _value: Any, _weights: Any, *tangents: Tensor) -> Tensor:
        terms = [_times(*each) for each in zip(tangents, ctx.saved_tensors, strict=True)]
        return sum(terms[1:], terms[0])
