"""What dead entries contribute: 0 in the place of nan, in gradients and in tangents, and nothing else is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, reduce
from typing import Any, Protocol

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import laid_out
from subgrad.apply.operators import Operator
from subgrad.apply.strong_zero.products import NORMALISED, PRODUCTS, Product, of_weight
from subgrad.apply.strong_zero.reach import Entries, Lines, Reach
from subgrad.apply.strong_zero.table import reaches
from subgrad.apply.strong_zero.terms import are_known_finite, may_hold_nan, of_live_terms, of_product, real_type
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.autograd import current_node, saved_operand, top_saved_tensors_hooks

MARK = "subgrad.strong_zero"  # of nodes, in what torch keeps beside them: the call
LARGE = 16384  # entries of a gradient that is not looked at where something smaller shows as much
Vectors = Sequence["Tensor | None"]  # cotangents, gradients or tangents


class ForCuda(Protocol):
    def __call__(self, called: Called, node: Any, gradients: Vectors, cotangents: Vectors) -> bool:
        """Take out of gradients, in place, what dead entries contribute; whether it is made for this call."""
        ...


for_cuda: ForCuda | None = None  # offered by `kernels`


def without_dead(vector: Tensor, dead: Sequence[Tensor]) -> Tensor:
    """0 where entries are nan and dead by all that reaches them; by nothing, if nothing does."""
    is_spared = reduce(torch.logical_and, dead, vector.isnan())
    return laid_out(torch.where(is_spared, 0, vector), vector)


# Operands that nodes do not keep, of their result and the other operand; None where they have no result either.
_OF_RESULT: dict[tuple[str, str], Callable[[Tensor | None, Tensor | None], Tensor | None]] = {
    ("ldexp", "self"): lambda result, other: None if result is None or other is None else torch.ldexp(result, -other),
    ("polar", "abs"): lambda result, _: None if result is None else result.abs(),
    ("polar", "angle"): lambda result, _: None if result is None else result.angle(),
}


class Called:
    """One call of an operator, as what must be known of it in backward. It keeps numbers, and no tensors.

    Attributes:
        op: the operator, in its functional form.
        reach: which entries depend on each other.
        likes: shape, type and device of the operands, by name, where some are broadcast.
        kept: operands, where a checkpoint hands them out only once.
        reads_node: whether the node's own are at hand, and not packed away by hooks.
    """

    def __init__(self, op: Operator, reach: Reach, args: Sequence[Any], kwargs: Mapping[str, Any]):
        self.op, self.reach = op, reach
        self._args = [None if isinstance(each, Tensor) else each for each in args]
        self._kwargs = {name: each for name, each in kwargs.items() if not isinstance(each, Tensor)} if kwargs else {}
        self.likes: dict[str, tuple[Any, ...]] = {}
        self.kept: dict[str, Tensor] = {}
        self.reads_node = top_saved_tensors_hooks(False) is None

    @classmethod
    def of(cls, op: Operator, result: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Called:
        """One for each call; one for all calls of an operator of entries that broadcasts nothing."""
        reach = reaches()[op.op]
        if not isinstance(reach, (Entries, Lines)):  # a union takes three times as long
            return cls(op, reach, args, kwargs)
        shape, is_broadcast = result.shape, False
        for each in args:
            if isinstance(each, Tensor) and each.shape != shape:
                is_broadcast = True
        if not is_broadcast and isinstance(reach, Entries):
            return _without_numbers(op)
        made = cls(op, reach, args, kwargs)
        if not is_broadcast:
            return made
        for name, each in zip(op.argument_names, args, strict=False):
            if isinstance(each, Tensor):
                made.likes[name] = (each.shape, each.dtype, each.device)
        return made

    @cached_property
    def given(self) -> dict[str, Any]:
        """The numbers of the call, by name."""
        return self.op.bind(self._args, self._kwargs)

    @property
    def name(self) -> str:
        return self.op.op.partition(".")[0]

    @property
    def is_scaled(self) -> bool:
        """Whether a product is multiplied with a number."""
        return self._kwargs.get("alpha", 1) != 1

    @property
    def needed(self) -> tuple[str, ...]:
        """The operands that the sum of live terms is made of."""
        product = PRODUCTS.get(self.name)
        if product is not None:
            return product.first, product.second
        return ("input", "running_mean", "running_var") if self.name in NORMALISED else tuple(self.likes)

    # Reverse mode.

    def hook(self, gradients: Vectors, cotangents: Vectors) -> tuple[Tensor | None, ...] | None:
        """Called with what the operator was given in backward, and what it makes of it; None to leave that as it is."""
        node = current_node()
        if node is None or node.metadata.get(MARK) is not self:  # as in compiled autograd
            node = None
        places, cotangent = _places(self.op), cotangents[0]
        is_on_cuda = cotangent is not None and cotangent.is_cuda
        if is_on_cuda and for_cuda is not None and for_cuda(self, node, gradients, cotangents):
            return None
        if not self._are_seen_to_be_right(node, gradients, cotangents):
            for place in places or range(len(gradients)):
                # To wait for a device takes less than three further products.
                if may_hold_nan(gradients[place], waits=bool(places)):
                    return self.gradients(node, gradients, cotangents)
        self.kept = {}
        return None

    def _are_seen_to_be_right(self, node: Any, gradients: Vectors, cotangents: Vectors) -> bool:
        """Whether what is no larger than the gradients shows that no dead entry made a nan in any of them.

        A device is waited for only where that is done anyway, for gradients that sum terms.
        """
        places = _places(self.op) or range(len(gradients))
        given = {place: each for place, each in enumerate(gradients) if place in places and each is not None}
        size = 0 if cotangents[0] is None else cotangents[0].numel()
        sums = bool(_places(self.op)) or any(each.numel() < size for each in given.values())
        if not sums and not all(each.is_cpu for each in given.values()):
            return False
        shown = [each for place, gradient in given.items() for each in self._shows(node, place, gradient, gradients)]
        return are_known_finite(shown)

    def _shows(self, node: Any, place: int, gradient: Tensor, gradients: Vectors) -> tuple[Tensor, ...]:
        """What is finite only if a gradient is right: smaller tensors, if there are any, that it is multiplied with."""
        if node is None or not self.reads_node or gradient.numel() < LARGE:
            return (gradient,)
        name = self.op.tensor_names[place]
        shown: tuple[Any, ...] = (None,)
        if self.name in PRODUCTS:
            other, _ = PRODUCTS[self.name].gradient(name) or (None, None)
            shown = (None if other is None else saved_operand(node, other),)
        elif self.name == "mul" and self.likes:
            shown = (saved_operand(node, "other" if name == "self" else "self"),)
        elif self.name == "div" and self.likes and name == "self":
            divisor = saved_operand(node, "other")
            shown = (None if divisor is None or divisor.numel() >= gradient.numel() else divisor.reciprocal(),)
        elif self.name in NORMALISED and name == "input":  # whatever is not finite shows in the weight's gradient
            shown = (gradients[1], saved_operand(node, "weight"))
        return shown if all(each is not None and each.numel() < gradient.numel() for each in shown) else (gradient,)

    def gradients(self, node: Any, gradients: Vectors, cotangents: Vectors) -> tuple[Tensor | None, ...]:
        """What an operator makes of its cotangents, without what dead entries contribute.

        Where the node is not known there are no operands: of what sums terms, nothing is dead unless all is.
        """
        names, sums = self.op.tensor_names, bool(_places(self.op))
        size = 0 if cotangents[0] is None else cotangents[0].numel()
        found = [
            self._gradient(node, names[place], each, cotangents)
            if each is not None and may_hold_nan(each, waits=sums or each.numel() < size)
            else each
            for place, each in enumerate(gradients)
        ]
        self.kept = {}
        return tuple(found)

    def _gradient(self, node: Any, name: str, gradient: Tensor, cotangents: Vectors) -> Tensor:
        cotangent = cotangents[0]
        summed = None if cotangent is None else self._summed(node, name, gradient, cotangent)
        if summed is not None:
            return laid_out(torch.where(gradient.isnan(), summed.to(gradient.dtype), gradient), gradient)
        given = [each for each in cotangents if each is not None]
        return without_dead(gradient, [self._dead_in(each == 0, gradient, name) for each in given])

    def _dead_in(self, zero: Tensor, gradient: Tensor, name: str) -> Tensor:
        dead = self.reach.dead_in(zero, gradient, name, self.given)
        return zero.all() if dead is None else dead

    def _summed(self, node: Any, name: str, gradient: Tensor, cotangent: Tensor) -> Tensor | None:
        """A gradient that sums terms, made of the live ones; None for one that does not."""
        if node is None:
            return None
        product = PRODUCTS.get(self.name)
        rule = None if product is None else product.gradient(name)
        if rule is not None:
            other = self._operand(node, rule[0])
            is_dense = other.layout is torch.strided
            return of_product(gradient, cotangent, other, self.name, name, self.given) if is_dense else None
        if name == "weight" and self.name in NORMALISED:
            normalised = NORMALISED[self.name](lambda each: self._operand(node, each), self.given)
            return of_live_terms(gradient, cotangent, normalised, of_weight, self.given)
        if name in self.likes and gradient.shape != cotangent.shape and cotangent.numel() != 1:
            wide = self._wide(node, name, cotangent)
            return without_dead(wide, [self._dead_in(cotangent == 0, wide, name)]).sum_to_size(gradient.shape)
        return None

    def _wide(self, node: Any, name: str, cotangent: Tensor) -> Tensor:
        """The gradient of an operand that was broadcast, before it is summed."""
        operands = {each: self._operand(node, each) for each in self.likes}

        def called(wide: Tensor) -> Tensor:
            arguments = {**self.given, **operands, name: wide}
            return overload(self.op.op)(*self.op.args(arguments), **self.op.kwargs(arguments))

        value, pull = torch.func.vjp(called, operands[name].expand(cotangent.shape))[:2]
        return pull(cotangent.to(value.dtype))[0]

    def _operand(self, node: Any, name: str) -> Tensor:
        """An operand as the node has kept it, or its result; zeros for one that its derivative does not need."""
        found = self.kept[name] if name in self.kept else saved_operand(node, name)
        rule = _OF_RESULT.get((self.name, name))
        if found is None and rule is not None:
            found = rule(saved_operand(node, "result"), saved_operand(node, "other"))
        if found is None:
            shape, dtype, device = self.likes[name]
            return torch.zeros(shape, dtype=dtype, device=device)
        return found

    # Forward mode.

    def tangent(self, tangent: Tensor, tangents: Mapping[str, Tensor], operands: Mapping[str, Tensor]) -> Tensor:
        """What an operator makes of the tangents of its operands, without what dead entries contribute."""
        if not may_hold_nan(tangent):
            return tangent
        product = PRODUCTS.get(self.name)
        if product is not None:
            return laid_out(self._of_live_products(product, tangent, tangents, operands), tangent)
        zeros = {name: each == 0 for name, each in tangents.items()}
        return without_dead(tangent, [self._dead_out(zero, tangent, name) for name, zero in zeros.items()])

    def _dead_out(self, zero: Tensor, tangent: Tensor, name: str) -> Tensor:
        dead = self.reach.dead_out(zero, tangent, name, self.given)
        return zero.all() if dead is None else dead

    def _of_live_products(
        self, product: Product, tangent: Tensor, tangents: Mapping[str, Tensor], operands: Mapping[str, Tensor]
    ) -> Tensor:
        first, second, truth = product.first, product.second, real_type(tangent)
        rest = torch.zeros_like(tangent)
        live = dead = torch.zeros_like(tangent, dtype=torch.bool)

        def made(name: str, moved: Tensor, other: Tensor) -> Tensor:
            return product.value(*((moved, other) if name == first else (other, moved)), self.given)

        for name, other in ((first, second), (second, first)):
            is_finite, is_live = operands[other].isfinite(), tangents[name] != 0
            clean, is_infinite = torch.where(is_finite, operands[other], 0), (~is_finite).to(truth)
            rest = rest + made(name, tangents[name], clean) * self.given.get("alpha", 1)
            live = live | (made(name, is_live.to(truth), is_infinite) != 0)
            dead = dead | (made(name, (~is_live).to(truth), is_infinite) != 0)
        if product.added is not None and product.added[0] in tangents:
            rest = rest + product.scaled(tangents[product.added[0]], self.given)
        return torch.where(tangent.isnan() & dead & ~live, rest, tangent)


@cache
def _places(op: Operator) -> tuple[int, ...]:
    """Which gradients of an operator can be nan where its cotangents are not; none if that may be all of them."""
    name = op.op.partition(".")[0]
    if name in PRODUCTS:
        return tuple(op.tensor_names.index(each) for each in (PRODUCTS[name].first, PRODUCTS[name].second))
    return tuple(op.tensor_names.index(each) for each in ("input", "weight")) if name in NORMALISED else ()


@cache
def _without_numbers(op: Operator) -> Called:
    return Called(op, reaches()[op.op], (), {})
