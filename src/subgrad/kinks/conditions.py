"""Words for places that depend on many entries at once, for the expressions of the table.

Most answer with a boolean tensor: where the place is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import copysign, inf

import torch
from torch import Tensor

from subgrad.kinks.groups import bags, segments
from subgrad.kinks.pooling_windows import Windows, adaptive, fractional, regular

__all__ = [
    "adaptive",
    "all_pairs",
    "constant",
    "fractional",
    "hinged_classes",
    "hinged_labels",
    "inf",
    "is_singular",
    "meets_running",
    "norms",
    "on_cells",
    "pairs",
    "regular",
    "repeated",
    "same_eigenvalues",
    "same_spectrum",
    "sign_of",
    "slices",
    "tied",
    "tied_in_bags",
    "tied_in_segments",
    "tied_in_windows",
    "tied_when_indexed",
    "tied_when_scattered",
    "torch",
    "variance",
    "zero",
]

WORDS = {
    "tied": "a tie",
    "repeated": "a tie",
    "meets_running": "a tie with the running extreme",
    "tied_in_windows": "a tie in a window",
    "tied_when_scattered": "a tie",
    "tied_when_indexed": "a tie",
    "tied_in_segments": "a tie in a segment",
    "tied_in_bags": "a tie in a bag",
    "zero": "the zero vector",
    "constant": "all entries equal",
    "same_spectrum": "repeated or vanishing values",
    "same_eigenvalues": "repeated eigenvalues",
    "is_singular": "a matrix without full rank",
    "variance": "no variance but eps",
    "hinged_classes": "a class on the margin",
    "hinged_labels": "a label on the margin",
    "on_cells": "a border of cells",
}

Dims = int | Sequence[int] | None


def _dims(x: Tensor, dim: Dims) -> list[int]:
    """Dimensions as torch's reductions read them: none given means all."""
    if isinstance(dim, int):
        return [dim]
    return list(dim) if dim else list(range(x.ndim))


def tied(x: Tensor, selected: Tensor, dim: Dims = None) -> Tensor:
    """Where more than one entry equals the one that was selected along some dimensions."""
    return (x == selected).sum(_dims(x, dim), keepdim=True) > 1


def repeated(x: Tensor, dim: int, among: Tensor | None = None) -> Tensor:
    """Which entries, or which of those selected, occur more than once along a dimension."""
    if x.ndim == 0:
        return x != x
    ordered = x.movedim(dim, -1).sort().values
    chosen = (x if among is None else among).movedim(dim, -1).contiguous()
    first, last = (torch.searchsorted(ordered, chosen, right=side) for side in (False, True))
    return (last - first > 1) & (chosen == chosen)  # nan, which is sorted as if it were equal to nan, is not


def meets_running(x: Tensor, running: Tensor, dim: int) -> Tensor:
    """Which entries equal the largest, or smallest, of those before them."""
    if x.ndim == 0:
        return x != x
    return x.narrow(dim, 1, max(x.shape[dim] - 1, 0)) == running.narrow(dim, 0, max(x.shape[dim] - 1, 0))


def tied_in_windows(x: Tensor, windows: Windows) -> Tensor:
    """Which windows hold their largest entry more than once."""
    # Candidate after candidate: all at once would be many times the input.
    largest = reduce(torch.maximum, (entries.masked_fill(~valid, -inf) for entries, valid in windows.columns(x)))
    count = torch.zeros_like(largest, dtype=torch.int32)
    for entries, valid in windows.columns(x):
        count += (entries == largest) & valid
    return count > 1


def tied_when_scattered(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Tensor:
    """Where ``scatter_reduce`` selects among equal entries."""
    if x.ndim == 0:
        x, index, src = x[None], index.reshape(1), src.reshape(1)
    result = x.scatter_reduce(dim, index, src, reduce, include_self=include_self)
    inside = src[tuple(slice(0, size) for size in index.shape)]
    hits = torch.zeros_like(x, dtype=torch.long)
    hits = hits.scatter_add(dim, index, (inside == result.gather(dim, index)).long())
    return hits + (x == result) * include_self > 1


def tied_when_indexed(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool) -> Tensor:
    """Where ``index_reduce`` selects among equal entries."""
    if source.ndim:
        index = index.reshape(-1, *[1] * (source.ndim - 1)).movedim(0, dim).expand_as(source)
    return tied_when_scattered(x, dim, index, source, reduce, include_self)


def tied_in_segments(
    data: Tensor, reduce: str, lengths: Tensor | None, offsets: Tensor | None, axis: int, initial: float | None = None
) -> Tensor:
    """Which segments of ``segment_reduce`` select among equal entries, or one that equals where it starts from."""
    return segments(data, lengths, offsets, axis).tied(reduce in ("max", "amax"), initial)


def tied_in_bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, padding_idx: int, include_last_offset: bool
) -> Tensor:
    """Which bags of ``embedding_bag`` select among equal entries; a row looked up twice is one entry."""
    return bags(weight, indices, offsets, padding_idx, include_last_offset).tied(largest=True)


def zero(x: Tensor, dim: Dims = None) -> Tensor:
    """Where all entries are zero along some dimensions."""
    return (x != 0).sum(_dims(x, dim), keepdim=True) == 0


def constant(x: Tensor, dim: Dims = None) -> Tensor:
    """Where all entries are the same along some dimensions."""
    dims = _dims(x, dim)
    return x.amax(dims) == x.amin(dims)


def variance(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The mean square deviation over the last dimensions, which have this shape."""
    return x.var(tuple(range(-len(shape), 0)), correction=0)


def pairs(x1: Tensor, x2: Tensor) -> Tensor:
    """The difference of every row of one to every row of the other."""
    return x1.unsqueeze(-2) - x2.unsqueeze(-3)


def all_pairs(x: Tensor) -> Tensor:
    """The difference of every two rows."""
    one, other = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return x[one] - x[other]


def norms(x: Tensor, p: float, dim: int) -> Tensor:
    """The norms of the slices along a dimension."""
    return torch.linalg.vector_norm(slices(x, dim), p, dim=1)


def slices(x: Tensor, dim: int) -> Tensor:
    """The slices along a dimension, as rows."""
    return x.movedim(dim, 0).flatten(1)


def rounding(values: Tensor) -> Tensor:
    """What singular and eigenvalues, being computed, are not known to."""
    return values.shape[-1] * torch.finfo(values.dtype).eps * values.abs().amax(-1, keepdim=True)


def same_spectrum(values: Tensor, vanishing: bool = False) -> Tensor:
    """Where neighbouring singular or eigenvalues are equal, or the last vanishes, as far as they are known."""
    if values.shape[-1] == 0:
        return values != values
    repeated = (values.diff(dim=-1).abs() <= rounding(values)).any(-1, keepdim=True)
    return repeated | (values[..., -1:] <= rounding(values)) if vanishing else repeated


def same_eigenvalues(matrix: Tensor) -> Tensor:
    """Where two eigenvalues of a matrix without symmetry are equal: computed, they split like a square root."""
    values = torch.linalg.eigvals(matrix)
    if values.shape[-1] == 0:
        return (values != values).any(-1)
    apart = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs()
    apart = apart + torch.diag_embed(torch.full_like(values.abs(), inf))
    return (
        apart.amin((-2, -1)) <= rounding(values.abs()).squeeze(-1).sqrt()
        if values.shape[-1]
        else apart.sum((-2, -1)) > 0
    )


def is_singular(matrix: Tensor) -> Tensor:
    """Where the smallest singular value of a matrix vanishes, as far as it is known."""
    values = torch.linalg.svdvals(matrix)
    return (values[..., -1:] <= rounding(values)).any(-1) if values.shape[-1] else (values != values).any(-1)


def sign_of(x: Tensor | float) -> Tensor | float:
    """1 or -1, also for zeros, as ``copysign`` takes it."""
    return torch.where(torch.signbit(x), -1.0, 1.0) if isinstance(x, Tensor) else copysign(1.0, x)


def hinged_classes(x: Tensor, target: Tensor, margin: float) -> Tensor:
    """Where a class of ``multi_margin_loss`` lies exactly on the margin."""
    x = x.reshape(1) if x.ndim == 0 else x
    rows, labels = x.reshape(-1, x.shape[-1]), target.reshape(-1, 1)
    other = torch.arange(x.shape[-1], device=x.device) != labels
    return (margin - rows.gather(1, labels) + rows == 0) & other


def hinged_labels(x: Tensor, target: Tensor) -> Tensor:
    """Where a pair of label and other class of ``multilabel_margin_loss`` lies exactly on the margin."""
    x = x.reshape(1) if x.ndim == 0 else x
    rows, labels = x.reshape(-1, x.shape[-1]), target.reshape(-1, x.shape[-1])
    listed = (labels < 0).cumsum(1) == 0  # labels end at the first that is negative
    is_label = torch.zeros_like(rows).scatter_add(1, labels.clamp(min=0), listed.to(rows.dtype)) > 0
    gaps = 1 - rows.gather(1, labels.clamp(min=0)).unsqueeze(2) + rows.unsqueeze(1)
    return (gaps == 0) & listed.unsqueeze(2) & ~is_label.unsqueeze(1)


def on_cells(x: Tensor, grid: Tensor, padding_mode: int, align_corners: bool, shift: float = 0.0) -> Tensor:
    """Which coordinates of a grid lie on a border of cells: a pixel centre, or with a shift the middle between two."""
    sizes = torch.tensor(x.shape[:1:-1], dtype=grid.dtype, device=grid.device)
    pixels = (grid + 1) / 2 * (sizes - 1) if align_corners else ((grid + 1) * sizes - 1) / 2
    border = ((pixels + shift) == (pixels + shift).round()) & (pixels >= -1) & (pixels <= sizes)
    if padding_mode == 0:
        return border
    edges = (pixels == 0) | (pixels == sizes - 1)
    # Beyond the image the border is all there is; reflections have their turning points at half pixels without corners.
    return border | edges | ((padding_mode == 2) & ((pixels * 2) == (pixels * 2).round()))
