"""Kinks entry by entry: corners take the slope of the side that the tangent points to, ties whom it selects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents_alone, tangent, values, weighted, with_tangent
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.operator_certificate import MANY, decided_entries
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule, is_differentiated
from subgrad.kinks import Kink
from subgrad.kinks.sets import Ball, Jump, Pole, Slopes, Ties

# Operators whose slopes are all 0 or 1: a byte holds one.
FLAT = ("maximum", "minimum", "fmax", "fmin", "clamp_min.Tensor", "clamp_max.Tensor", "clamp.Tensor")


@dataclass(frozen=True)
class Met:
    """A kink that a call meets: at which entries, and what was decided there.

    Attributes:
        kink: the row of the table.
        hit: which entries lie on it; None where ``sides`` says that as well.
        sides: for corners, 0 off the kink, 1 on its left and 2 on its right.
        weights: for ties and balls, of the candidates.
    """

    kink: Kink
    hit: Tensor | None
    sides: Tensor | None = None
    weights: Mapping[str, Tensor] | None = None

    def hits(self) -> Tensor:
        if self.hit is not None:
            return self.hit
        assert self.sides is not None
        return self.sides > 0

    def weight(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The derivative in one argument at the hits; None for torch's own."""
        if self.weights is not None:
            return self.weights.get(name)
        if name != "self":
            return None
        assert isinstance(self.kink.set, Slopes)
        assert self.sides is not None
        slopes, like = self.kink.set.at(arguments), arguments["self"]
        return torch.where(self.sides == 2, _as(slopes.right_slope, like), _as(slopes.left_slope, like))


def _as(slope: Any, like: Tensor) -> Tensor:
    # Filled on the device: a copy to it would wait.
    return slope if isinstance(slope, Tensor) else torch.full((), slope, dtype=like.dtype, device=like.device)


class Pointwise(Rule):
    """The rule of operators whose kinks are entry by entry."""

    is_entrywise = True

    def held(self, out: Any) -> list[tuple[int, Tensor]]:
        return super().held(out) if isinstance(out, Tensor) else []

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        flags = [_hit(kink, call.arguments, tol).any() for kink in _applying(call)]
        return reduce(torch.logical_or, flags) if flags else False

    def decide(self, call: PassCall, at: Decide) -> list[Met] | None:
        tangents = {name: tangent(call.arguments[name]) for name in call.op.tensor_names}
        if any(isinstance(kink.set, Ball) for kink in call.op.kinks):
            at.require_a_direction_without_form()
        with values():
            return [self._met(kink, call, tangents, at.tol) for kink in _applying(call)] or None

    def _met(self, kink: Kink, call: PassCall, tangents: Mapping[str, Tensor | None], tol: float) -> Met:
        hit = _hit(kink, call.arguments, tol)
        if isinstance(kink.set, Jump) or any(_is_complex(each) for each in call.arguments.values()):
            if bool(hit.any()):
                raise Refused(_no_set(kink))
            return Met(kink, hit, weights={})
        moved = {name: _or_zero(tangents[name]) for name in kink.set.candidates}
        if isinstance(kink.set, Slopes):
            side = torch.where(moved["self"] > 0, 2, 1)
            return Met(kink, None, sides=torch.where(hit, side, 0).to(torch.uint8))
        if isinstance(kink.set, Ball):
            return Met(kink, hit, weights=_unit(moved))
        assert isinstance(kink.set, Ties)
        return Met(kink, hit, weights=_selected(kink.set, moved))

    def decided_part(self, call: PassCall, out: Any, branch: Any) -> tuple[PassCall, Any]:
        if not isinstance(out, Tensor) or out.numel() <= MANY:
            return call, out
        with values():
            decided = reduce(torch.logical_or, [_hit(kink, call.arguments, 0.0) for kink in _applying(call)])
        return decided_entries(call, out, decided)

    def along(self, call: PassCall, branch: list[Met]) -> Any:
        return _with_tangents(call, branch) if carries_tangents_alone() else _with_weights(call, branch)


class WithoutForwardMode(Pointwise):
    """The same for operators that are not torch's: most have reverse mode alone, which gives their slopes as well."""

    wholly = True

    def decide(self, call: PassCall, at: Decide) -> list[Met]:
        return super().decide(call, at) or []

    def along(self, call: PassCall, branch: list[Met]) -> Any:
        return _with_weights(call, branch)


def _applying(call: PassCall) -> list[Kink]:
    # An infinite slope decides nothing: values tell.
    return [kink for kink in call.op.kinks if not isinstance(kink.set, Pole) and kink.applies(call.arguments)]


def _is_complex(argument: Any) -> bool:
    return isinstance(argument, Tensor) and argument.is_complex()


def _no_set(kink: Kink) -> str:
    what = kink.set.what if isinstance(kink.set, Jump) else "complex"
    return f"{kink.name} at {here()} has no generalised derivative where {kink.words} ({what})."


def _hit(kink: Kink, arguments: Mapping[str, Any], tol: float) -> Tensor:
    if tol == 0 or isinstance(kink.set, Jump):
        return kink.hits(arguments)
    if isinstance(kink.set, Slopes):
        return (arguments["self"] - kink.place_value(arguments)).abs() <= tol
    # "==" of the table, with the tolerance.
    near = {name: _Near(each, tol) for name, each in arguments.items() if isinstance(each, Tensor)}
    return kink.hits({**arguments, **near})


@dataclass(frozen=True)
class _Near:
    """A tensor that equals what is within a tolerance."""

    tensor: Tensor
    tol: float

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return (self.tensor - (other.tensor if isinstance(other, _Near) else other)).abs() <= self.tol

    def __lt__(self, other: _Near) -> Tensor:
        return (self.tensor < other.tensor) & ~(self == other)


def _or_zero(found: Tensor | None) -> Any:
    return torch.zeros(()) if found is None else found


def _unit(moved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of the Euclidean norm in the direction of the tangents."""
    one, other = moved.values()
    length = torch.hypot(*torch.broadcast_tensors(one.to(other), other) if one.ndim == 0 else (one, other.to(one)))
    return {name: torch.where(length > 0, each.to(length) / length, 0) for name, each in moved.items()}


def _selected(ties: Ties, moved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whom a selection takes once all candidates move by their tangents."""
    if len(moved) == 2:
        (name, one), (other_name, other) = moved.items()
        is_largest = ties.moved[name][1] == (name,)
        first = _at_least(one, other) if is_largest else _at_least(other, one)
        return {name: first, other_name: ~first}
    own, low, high = moved["self"], moved["min"], moved["max"]  # min(max(self, min), max)
    above = _at_least(own, low)
    upper = ~_at_least(high, torch.where(above, own, low))
    return {"self": above & ~upper, "min": ~above & ~upper, "max": upper}


def _at_least(one: Tensor, other: Tensor) -> Tensor:
    return one.to(other.device) >= other if one.ndim == 0 else one >= other.to(one.device)


def _with_tangents(call: PassCall, branch: list[Met]) -> Any:
    tangents = {name: tangent(call.arguments[name]) for name in call.op.tensor_names}
    out = call.native(call.arguments)
    unpacked = forward_ad.unpack_dual(out)
    with values():
        found = torch.zeros_like(out) if unpacked.tangent is None else unpacked.tangent
        for met in branch:
            terms = [
                weight * tangents[name]
                for name in call.op.tensor_names
                if tangents[name] is not None and (weight := met.weight(name, call.arguments)) is not None
            ]
            if terms:
                found = torch.where(met.hits(), reduce(torch.add, terms), found)
        value = unpacked.primal.clone()
    return with_tangent(value, found)


def _with_weights(call: PassCall, branch: list[Met]) -> Any:
    names = [name for name in call.op.tensor_names if is_differentiated(call.arguments[name])]
    value, weights = _native_weights(call, names, branch)
    operands = [call.arguments[name].to(value.device, value.dtype).expand_as(value) for name in names]
    return weighted(value, operands, weights)


def _native_weights(call: PassCall, names: list[str], branch: list[Met]) -> tuple[Tensor, list[Tensor]]:
    """The value, and the derivatives of every entry: torch's own off the kinks, what was decided on them."""
    tensors = [call.arguments[name].detach() for name in names]
    shape = torch.broadcast_shapes(*(each.shape for each in call.arguments.values() if isinstance(each, Tensor)))
    with torch.enable_grad():
        wide = [each.expand(shape).requires_grad_() for each in tensors]
        # `rrelu` draws random numbers: called once.
        out = call.native({**call.arguments, **dict(zip(names, wide, strict=True))})
        found = torch.autograd.grad(out, wide, torch.ones_like(out), allow_unused=True)
    value, weights = out.detach(), []
    for name, native in zip(names, found, strict=True):
        weight = torch.zeros_like(value) if native is None else native.to(value.dtype)
        for met in branch:
            decided = met.weight(name, call.arguments)
            if decided is not None:
                weight = torch.where(met.hits(), decided, weight)
            elif isinstance(met.kink.set, Ball):
                weight = torch.where(met.hits(), 0, weight)
        weights.append(weight.to(torch.int8) if call.op.op in FLAT else weight.to(value.dtype))
    return value, weights
