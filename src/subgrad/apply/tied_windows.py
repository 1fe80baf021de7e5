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

from subgrad.apply import entry_by_entry
from subgrad.apply.autograd_nodes import (
    Gate,
    alias,
    below_autograd,
    is_memory,
    is_readable,
    outer_levels,
    through,
)
from subgrad.apply.call import Arguments
from subgrad.kinks.pooling_windows import Look, Windows, of_call


def in_windows(windows_of: Callable[..., Windows]) -> Callable[..., Any]:
    """The rule of an operator: a window shares its cotangent among the entries that are its largest."""

    def repair(native: Callable[[Arguments], Any], arguments: Arguments) -> Any:
        values, indices = native(arguments)
        if values.numel() == 0:
            return values, indices
        windows = of_call(windows_of, arguments)
        if not _dimensions(windows):
            return values, indices
        kept = below_autograd(torch.clone, values)  # who gets them may overwrite them
        return through(_Shared, values, windows, arguments["self"], kept), indices

    return repair


class _Shared(Gate):
    """Tied windows share among their largest entries; others are torch's own, to the bit."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, windows: Windows, x: Tensor, kept: Tensor) -> Tensor:
        ctx.windows = windows
        ctx.save_for_backward(x, kept)
        ctx.save_for_forward(x, kept)
        with outer_levels():
            return alias(values)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, values = (each.detach() for each in ctx.saved_tensors)
        if entry_by_entry.is_for(ctx.windows, x, cotangent):
            own, shared = entry_by_entry.spread(ctx.windows, x, values, cotangent)
            return own, None, shared, None
        largest = largest_of_lines(x, values, ctx.windows)
        count = _count(largest, ctx.windows)
        if is_readable(count) and float(count.amax()) <= 1:
            return cotangent, None, None, None
        tied = (count > 1).to(cotangent.dtype)
        shares = _only((cotangent / count).to(cotangent.dtype), tied)
        return _only(cotangent, 1 - tied), None, given_back(shares, largest, ctx.windows), None

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor, _windows: Any, tangent: Tensor, _: Any) -> Tensor:
        x, values = ctx.saved_tensors
        largest = largest_of_lines(x, values, ctx.windows)
        count = _count(largest, ctx.windows)
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
        return torch.cat([_largest_in(_seen(x, look, dim), dim) for look in looks], dim)
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
    """How many largest entries each window has: in floating point, which is vectorised."""
    count = None
    for (dim, looks), entries, best in zip(_dimensions(windows), largest, largest[1:], strict=False):
        total = torch.zeros_like(best, dtype=entry_by_entry.counting(best.dtype, windows))
        for look in looks:
            part = _hits(entries, best, look, dim)
            part = part if count is None else part * _seen(count, look, dim)
            total[_at(dim, look.windows)] += part.sum(dim, keepdim=True) if look.is_window else part
        count = total
    assert count is not None
    return count


def _summed(vector: Tensor, largest: Sequence[Tensor], windows: Windows) -> Tensor:
    """For each window the sum over its largest entries of a vector's."""
    for (dim, looks), entries, best in zip(_dimensions(windows), largest, largest[1:], strict=False):
        total = _zeros(best, vector)
        for look in looks:
            part = _only(_seen(vector, look, dim), _hits(entries, best, look, dim))
            total[_at(dim, look.windows)] += part.sum(dim, keepdim=True) if look.is_window else part
        vector = total
    return vector


def given_back(shares: Tensor, largest: Sequence[Tensor], windows: Windows) -> Tensor:
    """For each entry the sum of the shares of the windows that it is the largest of."""
    for (dim, looks), entries, best in reversed([*zip(_dimensions(windows), largest, largest[1:], strict=False)]):
        total = _zeros(entries, shares)
        for look in looks:
            part = _only(shares[_at(dim, look.windows)], _hits(entries, best, look, dim))
            if isinstance(look.entries, slice):
                total[_at(dim, look.entries)] += part
            else:
                total = total.scatter_add(dim, look.entries.expand_as(part), part)
        shares = total
    return shares


def _zeros(like: Tensor, vector: Tensor) -> Tensor:
    zeros = torch.zeros_like(like, dtype=vector.dtype)
    return zeros if is_memory(vector) else zeros + vector.new_zeros(())  # batched where the vector is


def _hits(entries: Tensor, best: Tensor, look: Look, dim: int) -> Tensor:
    """Which entries are the largest of their windows, in ones and zeros."""
    entries, best = _seen(entries, look, dim), best[_at(dim, look.windows)]
    # Comparisons that give numbers are vectorised.
    hits = torch.eq(entries, best, out=entries.new_empty(0)) if is_memory(entries) else (entries == best).to(best.dtype)
    return hits if look.exists is None else hits * look.exists


def _only(vector: Tensor, hits: Tensor) -> Tensor:
    """A vector's entries where there are hits, zeros elsewhere, whatever they are: vectorised, as `where` is not."""
    return torch.ops.aten.threshold_backward(vector.expand_as(hits), hits, 0.5)


def _largest_in(x: Tensor, dim: int) -> Tensor:
    """As `amax`, which is a hundred times slower along dimensions that are not the last in memory."""
    while x.shape[dim] > 1:
        half = (x.shape[dim] + 1) // 2
        x = torch.maximum(x.narrow(dim, 0, half), x.narrow(dim, x.shape[dim] - half, half))
    return x


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
