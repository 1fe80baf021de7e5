"""The general rule: torch's own operator between two gates that give a call the chosen elements and nothing else.

A *fork* hands an operand to the operator as it is, a view of the same memory, and gives a *carrier* beside it; a
*join* takes both paths together again::

    x ──▶ fork ──▶ native operator ──▶ join ──▶ out        off the hits the derivative is the operator's own,
            └────▶ weight * carrier ───┘                   at the hits it is the carrier's

The operator meets the very input and the very cotangent that it meets in plain torch, in their own memory layouts, and
what it returns is only ever replaced at the hits, last of all. So values never change, and gradients away from the
hits are torch's own to the bit, even where they depend on layouts (at nan, or in the last bit of elu).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import (
    Gate,
    alias,
    are_known_absent,
    below_autograd,
    laid_out,
    outer_levels,
    overwritten,
    same,
    through,
)
from subgrad.apply.call import Arguments, Call
from subgrad.apply.executors import Run
from subgrad.apply.plan import Choice, Plan
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.autograd import forward_level
from subgrad.torch_internals.transforms import is_wrapper_subclass

# An operator with torch's own derivative, called with named arguments.
Native = Callable[[Arguments], Any]


class ForkJoin:
    """Any operator, on any device."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        if not plan.choices:
            return None
        operands = [name for name in call.op.operands if name in plan.names]
        # The rule must know the value first for operands of different shapes and dtypes.
        needs_value = len(call.op.operands) > 1 or any(choice.singular for choice in plan.choices)
        run = partial(_run, plan.choices, operands, needs_value)
        return partial(_in_place, run) if call.in_place else lambda call: run(call, call.native)

    def gains(self, op: str, key: str) -> bool:
        return False


def _run(choices: list[Choice], operands: list[str], needs_value: bool, call: Call, native: Native) -> Tensor:
    arguments = call.arguments
    if arguments["self"].is_cpu and all(are_known_absent(choice.hits(arguments)) for choice in choices):
        return native(arguments)  # on other devices, looking would mean to wait for them
    # The overload itself, not the kept original: below this level of `torch.func` there may be others to differentiate.
    called = partial(overload(call.op.op), **call.op.kwargs(arguments))
    value = below_autograd(called, *call.op.args(arguments)) if needs_value else None
    return take(native, value, arguments, operands, choices)


def _in_place(run: Callable[[Call, Native], Tensor], call: Call) -> Tensor:
    self = call.args[0]

    def native(arguments: Arguments) -> Tensor:
        """On a copy, since the derivative needs what is about to be overwritten; but in place there too: torch may
        differentiate that form from its result (elu), which rounds differently."""
        return call.native({**arguments, "self": laid_out(arguments["self"].clone(), self)})

    return overwritten(self, run(call, native))


def take(
    native: Native,
    value: Tensor | None,
    arguments: Arguments,
    differentiated: Sequence[str],
    choices: Sequence[Choice],
) -> Tensor:
    """Call an operator with the elements of ``choices`` at their hits, for the operands that are differentiated.

    ``value`` is what the operator returns, or None for an operator of one tensor, whose result is shaped like it.
    """
    if value is not None:
        arguments = aligned(arguments, differentiated, value)
    hits = [choice.hits(arguments) for choice in choices]
    paths, carriers = dict(arguments), [dict[str, Tensor]() for _ in choices]
    for name in differentiated:
        weights = [choice.weights[name] for choice in choices]
        paths[name], *carried = through(_Fork, arguments[name], weights, [each.spares for each in choices], *hits)
        for carrier, of_choice in zip(carried, carriers, strict=True):
            of_choice[name] = carrier
    for hit, choice in zip(hits, choices, strict=True):
        if choice.singular:
            paths.update({name: torch.where(hit, 1, paths[name]) for name in differentiated})
    out = native(paths)
    for hit, choice in zip(hits, choices, strict=True):
        if choice.require_inside is not None:
            below_autograd(choice.require_inside, arguments, hit)
    if all(choice.is_blocked for choice in choices) and forward_level() < 0:
        return out
    weighted = [_weighted(*each, arguments) for each in zip(choices, hits, carriers, strict=True)]
    return through(_Join, out, value, hits, *(carrier for each in weighted for carrier in each))


def _weighted(choice: Choice, hit: Tensor, carriers: Mapping[str, Tensor], arguments: Arguments) -> list[Tensor]:
    """The carriers with their weights: numbers are in them already, tensors are differentiable themselves."""
    if None not in choice.weights.values():
        return list(carriers.values())
    element = choice.element(arguments)
    return [
        carrier if choice.weights[name] is not None else torch.where(hit, element[name] * carrier, 0)
        for name, carrier in carriers.items()
    ]


def aligned(arguments: Arguments, differentiated: Sequence[str], value: Tensor) -> Arguments:
    """The operands as wide as the value, so that the two paths of each meet before anything is summed or rounded."""
    wide = {name: _of_a_kind(arguments[name].to(value.device, value.dtype), value) for name in differentiated}
    return {**arguments, **{name: operand.expand_as(value) for name, operand in wide.items()}}


def _of_a_kind(operand: Tensor, value: Tensor) -> Tensor:
    """A plain number that stands beside a DTensor becomes one, since it will be as wide."""
    if is_wrapper_subclass(value) and not is_wrapper_subclass(operand):
        return operand * value.new_ones(())
    return operand


class _Fork(Gate):
    """An operand for the operator, as it is, and a carrier of its derivative at the hits of each choice."""

    @staticmethod
    def forward(
        ctx: Any, operand: Tensor, weights: Sequence[float | None], spares: Sequence[bool], *hits: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.weights = list(zip(weights, spares, strict=True))
        ctx.save_for_backward(*hits)
        with outer_levels():
            return same(operand), *(_zeros(operand) for _ in hits)

    @staticmethod
    def backward(ctx: Any, of_operator: Tensor, *of_carriers: Tensor) -> tuple[Tensor | None, ...]:
        gradient = of_operator
        for hit, weight, cotangent in zip(ctx.saved_tensors, ctx.weights, of_carriers, strict=True):
            gradient = torch.where(hit, _scaled(weight, cotangent), gradient)
        return (laid_out(gradient, of_operator), None, None, *(None for _ in of_carriers))

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> tuple[Tensor, ...]:
        # The join replaces what the operator makes of it at the hits.
        return tangent.clone(), *(torch.zeros_like(tangent) + _scaled(each, tangent) for each in ctx.weights)


def _zeros(like: Tensor) -> Tensor:
    """Zeros: one number for all entries, unless tangents, which torch lays out as their primals, may be written."""
    if forward_level() >= 0:
        return torch.zeros_like(like)
    return below_autograd(like.new_zeros(()).expand, like.shape)


def _scaled(weighing: tuple[float | None, bool], vector: Tensor) -> Tensor | float:
    """A weight times a vector: exactly 0 for 0, whatever comes in, and left to be done for tensors."""
    weight, spares = weighing
    if weight is None or weight == 1:
        return vector
    if weight != weight and spares:  # nan, which some frameworks return where there is an element
        return torch.where(vector == 0, 0, weight * vector)
    return 0.0 if weight == 0 else weight * vector


class _Join(Gate):
    """The operator's result, with the sum of the carriers for a derivative at the hits of each choice."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, value: Tensor | None, hits: Sequence[Tensor], *carriers: Tensor) -> Tensor:
        ctx.hits = hits
        with outer_levels():
            return out.clone() if value is None else alias(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        carriers = len(ctx.needs_input_grad) - 3
        return (cotangent, None, None, *(cotangent for _ in range(carriers)))

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _value: Any, _hits: Any, *of_carriers: Tensor) -> Tensor:
        operands = len(of_carriers) // len(ctx.hits)
        found = tangent
        for index, hit in enumerate(ctx.hits):
            group = of_carriers[index * operands : (index + 1) * operands]
            found = torch.where(hit, reduce(torch.add, group), found)
        return laid_out(found, tangent)
