"""The least element at kinks of many entries at once: ties are shared evenly, values and indices are torch's own.

Each repair calls the native operator and changes its derivative at ties alone. Where entries can be looked at (not when
compiling, nor under `vmap`) and none tie, the native result is returned as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import (
    Gate,
    are_known_absent,
    below_autograd,
    outer_levels,
    same,
    through,
    valued,
)
from subgrad.apply.call import Arguments, Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.fork_join import Native
from subgrad.apply.plan import Plan
from subgrad.apply.tied_windows import in_windows
from subgrad.kinks.conditions import all_pairs, pairs, rounding, tied
from subgrad.kinks.groups import segment_numbers
from subgrad.kinks.pooling_windows import adaptive, fractional, regular
from subgrad.torch_internals.dispatcher import disable_autocast

Repair = Callable[[Native, Arguments], Any]


class TieSharing(Executor):
    """Operators whose tied entries share the cotangent evenly."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        if not plan.shares:
            return None
        # Torch's own composite calls the operator, which then comes here.
        return _run if call.form == call.op.op else Call.native


def _run(call: Call) -> Any:
    with disable_autocast():  # which would widen the sums over tied entries
        return REPAIRS[call.op.op](call.native, call.arguments)


# Selections along a line: every tied entry stands for the mean of all, whichever of them torch selects.


def along_lines(native: Native, arguments: Arguments) -> Any:
    """`max`, `sort`, `topk` and the like: the operator on entries whose derivatives are shared with those they tie."""
    x, dim = arguments["self"], arguments["dim"]
    if x.ndim == 0 or x.numel() == 0:
        return native(arguments)
    groups, count = below_autograd(_groups, x, dim)
    if are_known_absent(count > 1):
        return native(arguments)
    return native({**arguments, "self": through(_Shared, x, dim, groups, count, None)})


def _groups(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """For each entry along a dimension the number of its group of equal entries, and how many there are in it."""
    values, order = x.sort(dim=dim, stable=True)
    groups = torch.zeros_like(order).scatter(dim, order, _runs(values, dim))
    return groups, _counted(groups, dim)


def _runs(values: Tensor, dim: int) -> Tensor:
    """For each entry along a dimension the number of the run of equal entries that it is in."""
    rest = values.shape[dim] - 1
    starts = torch.zeros_like(values, dtype=torch.long)
    # Not `!=`, which DTensor of torch 2.11 cannot shard.
    starts.narrow(dim, 1, rest).copy_(~(values.narrow(dim, 1, rest) == values.narrow(dim, 0, rest)))
    return starts.cumsum(dim)


def _counted(groups: Tensor, dim: int) -> Tensor:
    return torch.zeros_like(groups).scatter_add(dim, groups, torch.ones_like(groups)).gather(dim, groups)


class _Shared(Gate):
    """A tensor whose derivative is shared evenly within groups of entries, and blocked at some.

    To share is to project: it is its own transpose, so that both modes do the same.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, groups: Tensor, count: Tensor, blocked: Tensor | None) -> Tensor:
        ctx.dim = dim
        ctx.save_for_backward(groups, count, blocked)
        ctx.save_for_forward(groups, count, blocked)
        with outer_levels():
            return same(x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return _share(ctx, cotangent), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _share(ctx, tangent)


def _share(ctx: Any, vector: Tensor) -> Tensor:
    groups, count, blocked = ctx.saved_tensors
    sums = torch.zeros_like(vector).scatter_add(ctx.dim, groups, vector)
    shared = torch.where(count > 1, sums.gather(ctx.dim, groups) / count, vector)
    return shared if blocked is None else torch.where(blocked, 0.0, shared)


# Selections from prefixes, which overlap: the mean of the tied entries, beside the native result.


def over_prefixes(native: Native, arguments: Arguments) -> Any:
    """`cummax` and `cummin`: an entry shares with those before it that tie with the running extreme."""
    values, indices = native(arguments)
    x, dim = arguments["self"], arguments["dim"]
    if x.ndim == 0 or x.numel() == 0:
        return values, indices
    with torch.no_grad():
        hits = x == values
        runs = _runs(values, dim)
        count = _running_sum(hits.long(), runs, dim)
    if are_known_absent(count > 1):
        return values, indices
    total = _running_sum(torch.where(hits, x, 0), runs, dim)
    means = torch.where(count > 1, total / count.clamp(min=1), values)
    return valued(means, values), indices


def _running_sum(x: Tensor, runs: Tensor, dim: int) -> Tensor:
    """Sums from the start of each run, by doubling: nothing is added and taken off again, as a difference would."""
    size, step = x.shape[dim], 1
    while step < size:
        earlier, here = x.narrow(dim, 0, size - step), x.narrow(dim, step, size - step)
        together = runs.narrow(dim, 0, size - step) == runs.narrow(dim, step, size - step)
        x = torch.cat([x.narrow(dim, 0, step), here + torch.where(together, earlier, 0)], dim)
        step *= 2
    return x


# Where torch returns no element at all.


def in_segments(native: Native, arguments: Arguments) -> Any:
    """`segment_reduce`: torch shares positive cotangents and repeats negative ones."""
    values, data = native(arguments), arguments["data"]
    if arguments["reduce"] not in ("max", "min", "amax", "amin") or values.numel() == 0:
        return values
    with torch.no_grad():
        hits = _segment_hits(values, arguments)
        count = native({**arguments, "data": hits.to(data.dtype), "reduce": "sum", "initial": None})
        initial = arguments["initial"]
        # A tie with the constant that it starts from puts 0 into the set.
        constant = torch.zeros_like(values, dtype=torch.bool) if initial is None else values == initial
    if are_known_absent((count > 1) | constant):
        return values
    total = native({**arguments, "data": torch.where(hits, data, 0), "reduce": "sum", "initial": None})
    means = torch.where(count > 1, total / count, values)
    return valued(torch.where(constant, 0, means), values)


def _segment_hits(values: Tensor, arguments: Arguments) -> Tensor:
    """Which entries are what their segment selects; segments need not cover all entries."""
    data, axis = arguments["data"], arguments["axis"] % arguments["data"].ndim
    segments, count = segment_numbers(data, arguments["lengths"], arguments["offsets"], axis)
    wide = segments.reshape(*segments.shape, *[1] * (data.ndim - axis - 1)).expand_as(data)
    return (data == values.gather(axis, wide.clamp(max=count - 1))) & (wide < count)


def largest_distances(pairs_of: Callable[[Arguments], Tensor]) -> Repair:
    """`cdist` and `pdist` with p = inf: torch gives every tied coordinate a whole slope."""

    def repair(native: Native, arguments: Arguments) -> Any:
        values = native(arguments)
        if arguments["p"] != inf or values.numel() == 0:
            return values
        differences = pairs_of(arguments)
        with torch.no_grad():
            ties = tied(differences.abs(), values.unsqueeze(-1), -1).squeeze(-1)
        if are_known_absent(ties):
            return values
        norms = torch.linalg.vector_norm(differences, inf, dim=-1)
        return valued(torch.where(ties, norms, values), values)

    return repair


def without_smoothing(native: Native, arguments: Arguments) -> Any:
    """`smooth_l1_loss` with beta 0 is `l1_loss`, whose kink is that of `abs`; torch's own slope is -1 for both."""
    if arguments["beta"] != 0:
        return native(arguments)
    return torch.ops.aten.l1_loss(arguments["self"], arguments["target"], arguments["reduction"])


# Spectra: equal values share, whichever basis torch found for them; singular values that are 0 take nothing.


def singular_values(native: Native, arguments: Arguments) -> Any:
    u, values, vh = native(arguments)
    return u, _shared_spectrum(values, zero_is_a_kink=True), vh


def eigenvalues(native: Native, arguments: Arguments) -> Any:
    values, vectors = native(arguments)
    return _shared_spectrum(values, zero_is_a_kink=False), vectors


def _shared_spectrum(values: Tensor, zero_is_a_kink: bool) -> Tensor:
    """Computed values carry rounding: equal means equal to it."""
    if values.numel() == 0:
        return values
    with torch.no_grad():
        starts = torch.zeros_like(values, dtype=torch.long)
        starts[..., 1:] = values.diff(dim=-1).abs() > rounding(values)
        groups = starts.cumsum(-1)
        count = _counted(groups, -1)
        blocked = values <= rounding(values) if zero_is_a_kink else torch.zeros_like(values, dtype=torch.bool)
    if are_known_absent((count > 1) | blocked):
        return values
    return through(_Shared, values, -1, groups, count, blocked)


REPAIRS: dict[str, Repair] = {
    **dict.fromkeys(
        ("max.dim", "min.dim", "median.dim", "nanmedian.dim", "kthvalue", "sort", "sort.stable", "topk"), along_lines
    ),
    **dict.fromkeys(("cummax", "cummin"), over_prefixes),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), in_windows(regular)),
    **dict.fromkeys(("adaptive_max_pool2d", "adaptive_max_pool3d"), in_windows(adaptive)),
    **dict.fromkeys(("fractional_max_pool2d", "fractional_max_pool3d"), in_windows(fractional)),
    "segment_reduce": in_segments,
    "_cdist_forward": largest_distances(lambda arguments: pairs(arguments["x1"], arguments["x2"])),
    "_pdist_forward": largest_distances(lambda arguments: all_pairs(arguments["self"])),
    "smooth_l1_loss": without_smoothing,
    "_linalg_svd": singular_values,
    "_linalg_eigh": eigenvalues,
}

# Joint kinks at which torch's own element stays, whatever the convention, and why.
LEFT_TO_TORCH = {
    "_embedding_bag": "a bag keeps only the index that torch selected",
    "grid_sampler_2d": "the slopes of both cells would have to be computed",
    "grid_sampler_3d": "the slopes of both cells would have to be computed",
    "renorm": "the slopes of both sides would have to be computed",
}
