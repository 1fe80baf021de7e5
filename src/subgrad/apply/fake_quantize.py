"""Rounded to a grid and back: torch's own values, and a gradient by a convention.

A fake-quantised entry is ``scale * (clamp(level, quant_min, quant_max) - zero_point)``, where ``level`` is
``round(x / scale) + zero_point``. Rounding is differentiated as if it were not there, which is what fake quantisation
is for. What is left is a clamp, whose bounds are met by every entry that is rounded to the first or the last level:
the slope there is the convention's for ``clamp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate
from subgrad.apply.levels import Grid, Slopes, is_differentiated
from subgrad.conventions import Convention
from subgrad.torch_internals.transforms import peek_interpreter_stack

Weights = tuple[float, ...]
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides


class Keep(Protocol):
    """Keeps masks in less memory than a byte an entry, where that can be done."""

    def accepts(self, value: Tensor, masks: Sequence[Tensor]) -> bool: ...

    def kept(self, masks: Sequence[Tensor]) -> Tensor:
        """What is kept, in bytes."""
        ...

    def weighed(self, kept: Tensor, weights: Weights, layout: Layout, cotangent: Tensor) -> Tensor:
        """As `weighed` with the masks, for a value of this layout."""
        ...


keeping: list[Keep] = []  # one, or none


def fake_quantize(x: Tensor, grid: Grid, convention: Convention) -> Tensor:
    """See `subgrad.functional.fake_quantize`."""
    slopes = Slopes.of(convention, grid.quant_min, grid.quant_max)
    if slopes is None or not any(map(is_differentiated, (x, grid.scale, grid.zero_point))):
        return grid.torchs_own(x)
    if grid.is_learned:
        return _called(_Valued, _learned(x, grid, slopes), x, grid.scale, grid.zero_point, grid)
    if slopes.beyond:
        return _called(_Valued, x, x, grid.scale, grid.zero_point, grid)
    return _called(_Masked, x, grid.scale, grid.zero_point, grid, slopes)[0]


def _called(function: Any, *args: Any) -> Any:
    """Outside of `torch.func` in one piece, since torch takes longer to put them together than all the rest."""
    return (_in_one_piece(function) if peek_interpreter_stack() is None else function).apply(*args)


@cache
def _in_one_piece(function: Any) -> Any:
    """The same function, whose context is set up by its forward."""

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = function.forward(*inputs)
        function.setup_context(ctx, inputs, output)
        return output

    parts = {"forward": forward, "backward": function.backward, "jvp": function.jvp}
    return type(function.__name__, (Gate,), {name: staticmethod(each) for name, each in parts.items()})


def _with(grid: Grid, scale: Any, zero_point: Any) -> Grid:
    """As they are at this level of `torch.func`."""
    is_the_same = scale is grid.scale and zero_point is grid.zero_point
    return grid if is_the_same else replace(grid, scale=scale, zero_point=zero_point)


class _Valued(torch.autograd.Function):
    """Torch's own values, with the derivative of something else."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derivative: Tensor, x: Tensor, scale: Any, zero_point: Any, grid: Grid) -> Tensor:
        return _with(grid, scale, zero_point).torchs_own(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return cotangent, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return tangent.clone()


class _Masked(torch.autograd.Function):
    """Torch's own values, with the cotangent weighed region by region."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, scale: Any, zero_point: Any, grid: Grid, slopes: Slopes) -> tuple[Tensor, ...]:
        given = _with(grid, scale, zero_point)
        if slopes.are_torchs:
            value, *masks = given.with_mask(x)
        else:
            value, masks = given.torchs_own(x), given.masks(given.level(x), slopes)
        keep = next((each for each in keeping if each.accepts(value, masks)), None)
        return value, *(masks if keep is None else (keep.kept(masks),))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, ...]) -> None:
        value, *held = output
        ctx.weights, ctx.layout = inputs[4].weights, (value.shape, value.stride())
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*held)
        ctx.save_for_backward(*held)
        ctx.save_for_forward(*held)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        found = None if cotangent is None else weighed(ctx.saved_tensors, ctx.weights, ctx.layout, cotangent)
        return found, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        held = ctx.saved_tensors
        return weighed(held, ctx.weights, ctx.layout, tangent), *(None for _ in held)


def weighed(held: Sequence[Tensor], weights: Weights, layout: Layout, vector: Tensor) -> Tensor:
    """The vector times the weight of each entry: exactly 0 where no mask holds, whatever comes in."""
    if held and held[0].dtype is torch.uint8:
        return keeping[0].weighed(held[0], weights, layout, vector)
    found = torch.zeros_like(vector)
    for mask, weight in zip(held, weights, strict=True):
        found = torch.where(mask, vector if weight == 1 else weight * vector, found)
    return found


def _learned(x: Tensor, grid: Grid, slopes: Slopes) -> Tensor:
    """What has the derivative with respect to entries, scale and zero point, whatever its value.

    With the slope w of an entry, its cut-off level c, and r = (c - zero_point) - x / scale, by which rounding moved it:
    w * (x + scale * r) + (1 - w) * scale * (c - zero_point), where r and c do not change. The derivatives are w,
    w * r + (1 - w) * (c - zero_point), and (w - 1) * scale: with w = 1 within and 0 beyond, learned step sizes.
    """
    first, last = grid.quant_min, grid.quant_max
    level = grid.level(x).nan_to_num(nan=first - 1.0)  # torch sends nan to the first level
    cut = torch.where(level < first, first, torch.where(level > last, last, level))
    scale, zero_point = (_parameter(each, grid, level) for each in (grid.scale, grid.zero_point))
    distance = cut - grid.level_of_zero(x)
    moved = distance - x.detach() / scale.detach()
    shift = zero_point - zero_point.detach()  # 0, with a derivative
    if slopes.beyond:
        return x + (scale * moved + 0 * shift)
    moved = torch.where(cut == level, moved, 0)  # what may be infinite beyond must not meet a cotangent of 0
    flat = scale * (distance - shift)
    found = flat
    for mask, weight in zip(grid.masks(level, slopes), slopes.weights, strict=True):
        straight = x + scale * moved
        found = torch.where(mask, straight if weight == 1 else weight * straight + (1 - weight) * flat, found)
    return found


def _parameter(each: Any, grid: Grid, level: Tensor) -> Tensor:
    """Beside the entries, and with its gradient multiplied."""
    if not isinstance(each, Tensor):
        return torch.as_tensor(each, dtype=level.dtype, device=level.device)
    wide = grid.beside(each, level)
    return wide if grid.grad_factor == 1 else wide.detach() + grid.grad_factor * (wide - wide.detach())
