"""Operators of one tensor that are straight between their corners: a byte an entry says which piece it lies on."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.branches import Call
from subgrad.apply.gates import Gate, alias, through
from subgrad.clarke.linear import carries_tangents_alone, tangent, values, with_tangent
from subgrad.clarke.passes import Decide
from subgrad.clarke.pointwise import Pointwise
from subgrad.kinks import Kink
from subgrad.kinks.sets import Jump, Slopes

BENT = ("relu", "abs", "leaky_relu", "hardtanh", "softshrink", "threshold", "clamp", "clamp_min", "clamp_max")


class Bent(Pointwise):
    """Their rule; a branch is the number of corners to the left of each entry, or of what it moves to."""

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        x = call.arguments["self"]
        if x.device.type != "cpu" or x.numel() == 0 or x.is_complex():
            return super().hits(call, tol)
        # The nearest entry is found faster there than all that lie on a corner; nan may hide one.
        places = [kink.place_value(call.arguments) for kink in _corners(call)]
        if not places and not _jumps(call):
            return False
        nearest = [((x - place) if place else x).abs().amin() for place in places]
        jumps = [kink.hits(call.arguments).any() for kink in _jumps(call)]
        return torch.stack([*(~(each > tol) for each in nearest), *jumps]).any()

    def decide(self, call: Call, at: Decide) -> Tensor | None:
        corners, x = _corners(call), call.arguments["self"]
        if _jumps(call) or x.is_complex():
            super().decide(call, at)  # refuses
        if not corners:
            return None
        moved = tangent(x)
        assert moved is not None
        with values():
            ahead = moved > 0
            places = [kink.place_value(call.arguments) for kink in corners]
            hits = [x == place if at.tol == 0 else (x - place).abs() <= at.tol for place in places]
            call.memo["met"] = reduce(torch.logical_or, (_any(hit) for hit in hits)) if at.is_first else None
            above = [_above(x, place, hit, ahead, at.tol) for place, hit in zip(places, hits, strict=True)]
            # On the CPU bytes are multiplied with faster than bools. Bounds may coincide, and then they are one corner.
            return reduce(torch.add, (each.view(torch.uint8) for each in above))

    def along(self, call: Call, branch: Tensor) -> Tensor:
        slopes = _slopes(call)
        if carries_tangents_alone():
            moved = tangent(call.arguments["self"])
            assert moved is not None
            with values():
                value, further = call.native(call.arguments), _scaled(moved, branch, slopes)
            return with_tangent(value, further)
        with values():
            value = call.native(call.arguments)
        return through(_Piecewise, value, branch, slopes, call.arguments["self"])


def _corners(call: Call) -> list[Kink]:
    found = [kink for kink in call.op.kinks if isinstance(kink.set, Slopes) and kink.applies(call.arguments)]
    return sorted(found, key=lambda kink: kink.place_value(call.arguments))


def _jumps(call: Call) -> list[Kink]:
    return [kink for kink in call.op.kinks if isinstance(kink.set, Jump) and kink.applies(call.arguments)]


def _slopes(call: Call) -> tuple[float, ...]:
    """Those of the pieces, from left to right."""
    sets = [kink.set.at(call.arguments) for kink in _corners(call) if isinstance(kink.set, Slopes)]
    return (sets[0].left_slope, *(each.right_slope for each in sets))


def _any(mask: Tensor) -> Tensor:
    return mask.any() if mask.is_cuda else torch.count_nonzero(mask) > 0  # which is faster on the CPU


def _above(x: Tensor, place: float, hit: Tensor, ahead: Tensor, tol: float) -> Tensor:
    return (x > place) | (hit & ahead) if tol == 0 else torch.where(hit, ahead, x > place)


def _scaled(vector: Tensor, piece: Tensor, slopes: tuple[float, ...]) -> Tensor:
    """A vector times the slopes of the pieces."""
    # Products, since `torch.where` takes longer than a matrix product on the CPU.
    if len(slopes) == 2:
        left, right = slopes
        step = piece if right - left == 1 else piece * (right - left)
        return vector * step if left == 0 else vector * (left + step)
    masks = ((piece == number) * slope for number, slope in enumerate(slopes) if slope)
    return vector * sum(masks, start=0)


class _Piecewise(Gate):
    """A value whose derivative is straight between corners."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, piece: Tensor, slopes: tuple[float, ...], operand: Tensor) -> Tensor:
        ctx.slopes = slopes
        ctx.save_for_backward(piece)
        ctx.save_for_forward(piece)
        return alias(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, _scaled(cotangent, ctx.saved_tensors[0], ctx.slopes)

    @staticmethod
    def jvp(ctx: Any, _value: Any, _piece: Any, _slopes: Any, moved: Tensor) -> Tensor:
        return _scaled(moved, ctx.saved_tensors[0], ctx.slopes)
