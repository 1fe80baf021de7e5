"""`max_pool2d` on the CPU, of few entries in windows side by side: ten operators of torch, where others take twenty.

For so few entries calling an operator takes longer than what it does.
"""

from __future__ import annotations

from math import isnan

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_memory
from subgrad.apply.call import Arguments

FEW = 1 << 14  # entries


def tied_windows(x: Tensor, arguments: Arguments) -> Tensor | None:
    """See `window_scan`."""
    shape = _side_by_side(x, arguments)
    if shape is None:
        return None
    windows = x.detach().view(shape)
    best = windows.amax((-3, -1), keepdim=True)
    smaller = windows < best
    if torch.count_nonzero(smaller).item() == x.numel() - best.numel():  # all but one entry of each; none is nan
        return torch.zeros((), dtype=torch.long)
    return torch.count_nonzero((windows == best).sum((-3, -1)) > 1)


def look_ahead(
    x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """See `window_scan`."""
    shape = _side_by_side(x, arguments)
    if last or shape is None or not is_memory(tangent) or tangent.dtype is not x.dtype:
        return None
    if values.shape != (*shape[:-3], shape[-2]) or isnan(values.sum().item()):
        return None
    best = values.view(*shape[:-3], 1, shape[-2], 1)
    smaller = x.detach().view(shape) < best  # which does not count, whatever its tangent
    moved = tangent.reshape(shape).clamp(min=torch.finfo(tangent.dtype).min).masked_fill_(smaller, -torch.inf)
    most, chosen = torch.ops.aten.max_pool2d_with_indices.default(moved.view(x.shape), [shape[-3], shape[-1]])
    behind, others = moved < most.view(best.shape), x.numel() - values.numel()
    return chosen, others - torch.count_nonzero(smaller), others - torch.count_nonzero(behind)


def _side_by_side(x: Tensor, arguments: Arguments) -> tuple[int, ...] | None:
    """The shape in which windows have two dimensions of their own; None where they overlap, leave gaps or are many."""
    if not x.is_cpu or x.ndim not in (3, 4) or not 0 < x.numel() <= FEW or not x.is_contiguous() or not is_memory(x):
        return None
    kernel, stride = ([*arguments[name]] for name in ("kernel_size", "stride"))
    high, wide = kernel[0], kernel[-1]
    if (stride and [stride[0], stride[-1]] != [high, wide]) or any(arguments["padding"]) or len(kernel) > 2:
        return None
    if any(each != 1 for each in arguments["dilation"]) or x.shape[-2] % high or x.shape[-1] % wide:
        return None
    return *x.shape[:-2], x.shape[-2] // high, high, x.shape[-1] // wide, wide
