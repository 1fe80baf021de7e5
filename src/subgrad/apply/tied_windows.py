"""Pooling whose tied entries share, by torch's operators: windows of any kind, on any device, in every mode.

A window is a product of lines, so it is looked at one dimension after the other: every line keeps its largest entry,
and from then on stands for it. That takes as many looks as a window is wide and high together, not as it has entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import (
    Gate,
    alias,
    are_known_absent,
    below_autograd,
    is_memory,
    outer_levels,
    through,
)
from subgrad.apply.call import Arguments
from subgrad.kinks.pooling_windows import Look, Windows, of_call


def in_windows(windows_of: Callable[..., Windows]) -> Callable[..., Any]:
    """The rule of an operator: a window shares its cotangent among the entries that are its largest."""

    def repair(native: Callable[[Arguments], Any], arguments: Arguments) -> Any:
        x = arguments["self"]
        values, indices = native(arguments)
        if values.numel() == 0:
            return values, indices
        windows = of_call(windows_of, arguments)
        if not _dimensions(windows):
            return values, indices
        largest = below_autograd(largest_of_lines, x, values, windows)
        count = below_autograd(_count, largest, windows)
        if are_known_absent(count > 1):
            return values, indices
        largest[-1] = below_autograd(torch.clone, values)  # who gets them may overwrite them
        return through(_Shared, values, windows, count, *largest), indices

    return repair


class _Shared(Gate):
    """Tied windows share among their largest entries; others are torch's own, to the bit."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, windows: Windows, count: Tensor, *largest: Tensor) -> Tensor:
        ctx.windows = windows
        ctx.save_for_backward(count, *largest)
        ctx.save_for_forward(count, *largest)
        with outer_levels():
            return alias(values)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        count, x, *largest = ctx.saved_tensors
        shared = given_back(torch.where(count > 1, cotangent / count, 0), [x.detach(), *largest], ctx.windows)
        return torch.where(count > 1, 0, cotangent), None, None, shared, *[None] * len(largest)

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor, _windows: Any, _count: Any, tangent: Tensor, *_: Any) -> Tensor:
        count, *largest = ctx.saved_tensors
        return torch.where(count > 1, _summed(tangent, largest, ctx.windows) / count, of_values)


def largest_of_lines(x: Tensor, values: Tensor, windows: Windows) -> list[Tensor]:
    """The input, the largest entries of its lines along one dimension, of those along the next, and so on.

    The last are the values: as large as the windows' entries, and nan, which no entry equals, where a window has one.
    """
    found = [x]
    for dim, looks in _dimensions(windows)[:-1]:
        found.append(_largest_along(found[-1], dim, looks, values.shape[dim]))
    return [*found, values]


def _dimensions(windows: Windows) -> list[tuple[int, tuple[Look, ...]]]:
    """Those in which windows differ from entries, the outermost first: whole rows of memory."""
    dims = len(windows.sizes)
    return [(number - dims, looks) for number, looks in enumerate(windows.looks) if looks]


def _largest_along(x: Tensor, dim: int, looks: tuple[Look, ...], outputs: int) -> Tensor:
    if looks[0].is_window:
        return torch.cat([_seen(x, look, dim).amax(dim, keepdim=True) for look in looks], dim)
    everywhere = slice(0, outputs)
    seen = [_existing(x, look, dim) for look in looks if look.windows == everywhere]
    # A tensor of its own, also of one look, which would be a view.
    found = reduce(torch.maximum, seen[1:] or seen, seen[0]) if seen else x.new_full(_with(x, dim, outputs), -inf)
    for look in looks:
        if look.windows != everywhere:  # at the border some windows have fewer entries
            place = _at(dim, look.windows)
            found[place] = torch.maximum(found[place], _seen(x, look, dim))
    return found


def _count(largest: Sequence[Tensor], windows: Windows) -> Tensor:
    """How many largest entries each window has."""
    dtype, count = torch.uint8 if windows.candidates < 256 else torch.int32, None
    for (dim, looks), entries, best in zip(_dimensions(windows), largest, largest[1:], strict=False):
        total = torch.zeros_like(best, dtype=dtype)
        for look in looks:
            hits = _seen(entries, look, dim) == best[_at(dim, look.windows)]
            hits = hits if look.exists is None else hits & look.exists
            part = hits.to(dtype) if count is None else hits.to(dtype) * _seen(count, look, dim)
            total[_at(dim, look.windows)] += part.sum(dim, keepdim=True, dtype=dtype) if look.is_window else part
        count = total
    assert count is not None
    return count


def _summed(vector: Tensor, largest: Sequence[Tensor], windows: Windows) -> Tensor:
    """For each window the sum over its largest entries of a vector's."""
    for (dim, looks), entries, best in zip(_dimensions(windows), largest, largest[1:], strict=False):
        total = _zeros(best, vector)
        for look in looks:
            part = _where_largest(_seen(vector, look, dim), entries, best, look, dim)
            total[_at(dim, look.windows)] += part.sum(dim, keepdim=True) if look.is_window else part
        vector = total
    return vector


def given_back(shares: Tensor, largest: Sequence[Tensor], windows: Windows) -> Tensor:
    """For each entry the sum of the shares of the windows that it is the largest of."""
    for (dim, looks), entries, best in reversed([*zip(_dimensions(windows), largest, largest[1:], strict=False)]):
        total = _zeros(entries, shares)
        for look in looks:
            part = _where_largest(shares[_at(dim, look.windows)], entries, best, look, dim)
            if isinstance(look.entries, slice):
                total[_at(dim, look.entries)] += part
            else:
                total = total.scatter_add(dim, look.entries.expand_as(part), part)
        shares = total
    return shares


def _zeros(like: Tensor, vector: Tensor) -> Tensor:
    zeros = torch.zeros_like(like, dtype=vector.dtype)
    return zeros if is_memory(vector) else zeros + vector.new_zeros(())  # batched where the vector is


def _where_largest(vector: Tensor, entries: Tensor, best: Tensor, look: Look, dim: int) -> Tensor:
    """A vector's entries where those of the input are the largest, zeros elsewhere."""
    best = best[_at(dim, look.windows)]
    if look.exists is not None:
        vector = torch.where(look.exists, vector, 0)
    # Many times as fast as `where`: numbers are the same where their difference is 0, or nan as that of two infinities.
    # Windows of nan have it, too, but no share.
    difference = _seen(entries, look, dim) - best
    numbers = torch.finfo(difference.dtype)
    least = numbers.smallest_normal * numbers.eps
    return torch.ops.aten.threshold_backward(vector.expand_as(difference), difference, -least)


def _existing(x: Tensor, look: Look, dim: int) -> Tensor:
    seen = _seen(x, look, dim)
    return seen if look.exists is None else seen.masked_fill(~look.exists, -inf)


def _seen(x: Tensor, look: Look, dim: int) -> Tensor:
    if isinstance(look.entries, slice):
        return x[_at(dim, look.entries)]
    return x.gather(dim, look.entries.expand(_with(x, dim, look.entries.shape[dim])))


def _with(x: Tensor, dim: int, size: int) -> list[int]:
    shape = [*x.shape]
    shape[dim] = size
    return shape


def _at(dim: int, places: slice) -> tuple[Any, ...]:
    return (..., places, *[slice(None)] * (-1 - dim))
