"""Operators of one tensor that are straight between their corners: a byte an entry says which piece it lies on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, through
from subgrad.apply.operators import operator
from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents_alone, tangent, values, with_tangent
from subgrad.clarke.engine.passes import Decide, some
from subgrad.clarke.rules.pointwise import Pointwise
from subgrad.kernels.cuda_corner_scan import count_at
from subgrad.kinks import Kink
from subgrad.kinks.rounded import rounded
from subgrad.kinks.sets import Jump, Slopes

BENT = ("relu", "abs", "leaky_relu", "hardtanh", "softshrink", "threshold", "clamp", "clamp_min", "clamp_max")


@dataclass(frozen=True)
class Pieces:
    """What the table says of an operator with some numbers beside its tensor.

    Attributes:
        corners: where they lie, from left to right.
        slopes: of the pieces, one more than corners.
        jumps: kinks that are none.
    """

    corners: tuple[float, ...]
    slopes: tuple[float, ...]
    jumps: tuple[Kink, ...]


def _pieces(call: PassCall) -> Pieces:
    op, arguments = call.op, call.arguments
    numbers = [arguments[name] for name in op.argument_names if name != "self"]
    return _pieces_of(op.op, tuple(numbers), arguments["self"].dtype)


@lru_cache(maxsize=1024)  # numbers may be other ones in every call
def _pieces_of(name: str, numbers: tuple[Any, ...], dtype: torch.dtype) -> Pieces:
    op = operator(name)
    arguments = dict(zip((name for name in op.argument_names if name != "self"), numbers, strict=True))
    kinks = [kink for kink in op.kinks if kink.applies(arguments, dtype)]
    places = [rounded(kink.place_value(arguments, dtype), dtype) for kink in kinks if isinstance(kink.set, Slopes)]
    bends = [kink.set.at(arguments) for kink in kinks if isinstance(kink.set, Slopes)]
    corners = list(zip(places, bends, strict=True))
    corners.sort(key=lambda corner: corner[0])
    sets = [each for _, each in corners]
    slopes = (sets[0].left_slope, *(each.right_slope for each in sets)) if sets else ()
    jumps = tuple(kink for kink in kinks if isinstance(kink.set, Jump))
    return Pieces(tuple(place for place, _ in corners), slopes, jumps)


class Bent(Pointwise):
    """Their rule; a branch is the number of corners to the left of each entry, or of what it moves to."""

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        x, pieces = call.arguments["self"], _pieces(call)
        if x.numel() == 0 or x.is_complex():
            return super().hits(call, tol)
        flags = [*_on_corners(x, pieces.corners, tol), *(kink.hits(call.arguments).any() for kink in pieces.jumps)]
        return any(flags) if x.is_cpu else reduce(torch.logical_or, flags) if flags else False

    def decide(self, call: PassCall, at: Decide) -> Tensor | None:
        x, pieces = call.arguments["self"], _pieces(call)
        if pieces.jumps or x.is_complex():
            super().decide(call, at)  # refuses
        if not pieces.corners:
            return None
        moved = tangent(x)
        assert moved is not None
        with values():
            ahead = moved > 0
            hits = [x == place if at.tol == 0 else (x - place).abs() <= at.tol for place in pieces.corners]
            call.memo["met"] = reduce(torch.logical_or, map(some, hits)) if at.is_first else None
            above = [_above(x, place, hit, ahead, at.tol) for place, hit in zip(pieces.corners, hits, strict=True)]
            # On the CPU bytes are multiplied with faster than bools. Bounds may coincide, and then they are one corner.
            return reduce(torch.add, (each.view(torch.uint8) for each in above))

    def along(self, call: PassCall, branch: Tensor) -> Tensor:
        slopes = _pieces(call).slopes
        if not carries_tangents_alone():
            return through(_Piecewise, call, branch, slopes, call.arguments["self"])
        moved = tangent(call.arguments["self"])
        assert moved is not None
        with values():
            value, further = call.native(call.arguments), _scaled(moved, branch, slopes)
        return with_tangent(value, further)


def _on_corners(x: Tensor, corners: tuple[float, ...], tol: float) -> list[Any]:
    """Flags, of which one is set if an entry lies on a corner."""
    if x.is_cpu:  # the nearest entry is found faster there than all that lie on a corner; nan may hide one
        return [not ((x - place) if place else x).abs().amin().item() > tol for place in corners]
    if tol == 0 and len(corners) > 1:  # for one it takes as long to launch as torch's two operators do
        count = count_at(x, corners, together=True)
        if count is not None:
            return [count]
    return [(x == place if tol == 0 else (x - place).abs() <= tol).any() for place in corners]


def _above(x: Tensor, place: float, hit: Tensor, ahead: Tensor, tol: float) -> Tensor:
    return (x > place).bitwise_or_(hit.bitwise_and_(ahead)) if tol == 0 else torch.where(hit, ahead, x > place)


def _scaled(vector: Tensor, piece: Tensor, slopes: tuple[float, ...]) -> Tensor:
    """A vector times the slopes of the pieces."""
    # Products, since `torch.where` takes longer than a matrix product on the CPU.
    if len(slopes) != 2:
        masks = ((piece == number) * slope for number, slope in enumerate(slopes) if slope)
        return vector * sum(masks, start=0)
    left, right = slopes
    if (left, right) == (0, 1):
        # On the CPU in the memory that the conversion takes anyway; elsewhere there is none.
        return piece.to(vector.dtype).mul_(vector) if vector.is_cpu else vector * piece
    # In 16 bits slopes would not add up.
    slope = piece.to(torch.promote_types(vector.dtype, torch.float32)).mul_(right - left).add_(left)
    return vector * slope


class _Piecewise(Gate):
    """The value of a call, whose derivative is straight between corners."""

    @staticmethod
    def forward(ctx: Any, call: PassCall, piece: Tensor, slopes: tuple[float, ...], operand: Tensor) -> Tensor:
        ctx.slopes = slopes
        ctx.save_for_backward(piece)
        ctx.save_for_forward(piece)
        with values():
            return call.native(call.arguments)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, _scaled(cotangent, ctx.saved_tensors[0], ctx.slopes)

    @staticmethod
    def jvp(ctx: Any, _call: Any, _piece: Any, _slopes: Any, moved: Tensor) -> Tensor:
        return _scaled(moved, ctx.saved_tensors[0], ctx.slopes)
