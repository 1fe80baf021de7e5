"""The rule: one composition of native operators that gives a call the chosen elements and nothing else.

With ``N`` the native operator, ``stop`` the value without its derivative, and weights ``w`` at the hits::

    out = where(hits, w_1 * x_1 + w_2 * x_2 + ..., N(where(hits, stop(x), x)))

has the wanted derivative in every mode and order, because every part is native and differentiable. Its value at the
hits is arbitrary, so the value of ``N(x)`` is written over it below autograd: forward values cannot change, not even
the bits of a nan, which in torch depend on the layout of ``x``.

Gradients are exact to the bit, signs of zeros included, wherever torch's own do not depend on memory layout (at nan,
and in the last bit of elu, they do). An operand with a weight is reached by two paths whose gradients are added, and
away from its own entries a path must contribute -0.0, the one neutral element of floating-point addition:
``-where(hits, -x, 0)`` has the derivative of ``where(hits, x, 0)`` with -0.0 in place of 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.kinks.sets import Element

Arguments = Mapping[str, Any]
# An operator with torch's own derivative, called with named arguments.
Native = Callable[[Arguments], Tensor]


@dataclass(frozen=True)
class Choice:
    """What to take at one kink, as functions of the call's arguments.

    Attributes:
        hits: which entries lie on the kink.
        element: the weights of the operands there; asked for after the forward ran, as `rrelu` makes its slopes then.
        blocked: the operands known beforehand to have weight 0.
    """

    hits: Callable[[Arguments], Tensor]
    element: Callable[[Arguments], Element]
    blocked: frozenset[str]


def take(
    native: Native,
    value: Tensor | None,
    arguments: Arguments,
    differentiated: Sequence[str],
    choices: Sequence[Choice],
) -> Tensor:
    """Call an operator with the elements of ``choices`` at their hits, for the operands that are differentiated.

    ``value`` is what the operator returns; None for a random one, which can be called only once.
    """
    if value is not None:
        arguments = aligned(arguments, differentiated, value)
    hits = [choice.hits(arguments) for choice in choices]
    for name in differentiated:
        arguments = {**arguments, name: _blocked(arguments[name], name, hits, choices)}
    stopped = {name: _stopped(arguments[name], name, hits, choices) for name in differentiated}
    out = native({**arguments, **stopped})
    value = stop(out) if value is None else value
    for hit, choice in zip(hits, choices, strict=True):
        out = torch.where(hit, _carrier(hit, choice.element(arguments), arguments, differentiated, value), out)
    return with_value(out, value)


def _blocked(operand: Tensor, name: str, hits: Sequence[Tensor], choices: Sequence[Choice]) -> Tensor:
    """The operand with a derivative of exactly 0.0 where it has no weight."""
    where = [hit for hit, choice in zip(hits, choices, strict=True) if name in choice.blocked]
    return torch.where(reduce(torch.logical_or, where), stop(operand), operand) if where else operand


def _stopped(operand: Tensor, name: str, hits: Sequence[Tensor], choices: Sequence[Choice]) -> Tensor:
    """The operand as the native operator gets it: without a derivative where a carrier supplies one."""
    where = [hit for hit, choice in zip(hits, choices, strict=True) if name not in choice.blocked]
    return -torch.where(reduce(torch.logical_or, where), -stop(operand), -operand) if where else operand


def _carrier(
    hit: Tensor, element: Element, arguments: Arguments, differentiated: Sequence[str], nothing: Tensor
) -> Tensor:
    """A tensor whose derivative at the hits is the element; its value does not matter."""
    weights = {name: element.get(name, 0.0) for name in differentiated}
    parts = [
        -weight * torch.where(hit, -arguments[name], 0)
        for name, weight in weights.items()
        if isinstance(weight, Tensor) or weight != 0
    ]
    return reduce(torch.add, parts) if parts else nothing


def aligned(arguments: Arguments, differentiated: Sequence[str], value: Tensor) -> Arguments:
    """The operands as wide as the value, so that the two paths of each meet before anything is summed or rounded."""
    wide = {name: arguments[name].to(value.device, value.dtype).expand_as(value) for name in differentiated}
    return {**arguments, **wide}


def below_autograd(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """Call without derivatives at this level; outer levels of `torch.func` keep theirs (`detach` would cut all)."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return function(*args)


def stop(tensor: Tensor) -> Tensor:
    """The value without its derivative."""
    return below_autograd(torch.ops.aten.alias, tensor)


def with_value(out: Tensor, value: Tensor) -> Tensor:
    """``out`` with its derivative as it is, and the value and layout of another tensor."""
    if out.stride() != value.stride():
        out = value.new_empty_strided(value.shape, value.stride()).copy_(out)
    below_autograd(out.copy_, value)
    return out
