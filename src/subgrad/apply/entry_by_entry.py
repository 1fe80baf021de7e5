"""Pooling on the CPU whose tied entries share, where windows are small, or one covers all: of few operators of torch's.

The first entries of all windows are looked at together, then their second ones, and so on. What they are given is added
from the last to the first: every entry has its shares in the order of the windows, as from torch's own kernel, so that
those of windows that do not tie are torch's to the bit.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from subgrad.apply.autograd_nodes import is_memory, laid_out
from subgrad.kinks.pooling_windows import Windows
from subgrad.torch_internals.tracing import is_in_compiled_autograd

MOST = 32  # entries of a window, if there are several
_FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}  # by dimensions in space
_only = torch.ops.aten.threshold_backward  # lets a vector through where a mask of ones and zeros has ones
Both = tuple[Tensor | None, Tensor | None]


def is_for(windows: Windows, x: Tensor, cotangent: Tensor) -> bool:
    """Gradients of plain memory that nobody differentiates, and of which some may be absent."""
    is_few = bool(windows.slices) and (windows.candidates <= MOST or _is_one(windows))
    are_memory = x.is_cpu and is_memory(x) and is_memory(cotangent)
    return is_few and are_memory and not torch.is_grad_enabled() and not is_in_compiled_autograd()


def _is_one(windows: Windows) -> bool:
    """Whether there is one window, of all entries."""
    return prod(windows.shape) == 1 and windows.candidates == prod(windows.sizes)


def spread(windows: Windows, x: Tensor, values: Tensor, cotangent: Tensor) -> Both:
    """The cotangent that is left to torch's own kernel, and the gradient by the rest; None where there is none."""
    return (_to_all if _is_one(windows) else _to_each)(windows, x, values, cotangent)


def _to_all(windows: Windows, x: Tensor, values: Tensor, cotangent: Tensor) -> Both:
    hits = torch.eq(x, values, out=x.new_empty(0))  # numbers, since that is vectorised
    count = hits.sum(tuple(range(-len(windows.sizes), 0)), keepdim=True, dtype=counting(x.dtype, windows))
    own = _left_to_torch(count, cotangent)
    return own, None if own is cotangent else _only(_shares(cotangent, count).expand_as(hits), hits, 0.5)


def _to_each(windows: Windows, x: Tensor, values: Tensor, cotangent: Tensor) -> Both:
    given, dims = x, len(windows.sizes)
    if x.ndim == dims + 2 and x.shape[1] >= 8 and windows.slices[-1][0].step > 1:
        # Else entries of neighbouring windows lie apart, and no instruction takes several.
        x, values, cotangent = (each.contiguous(memory_format=_FORMATS[dims]) for each in (x, values, cotangent))
    x = pad(x, windows.padding, value=float("nan")) if any(windows.padding) else x
    stacked = values.new_empty_strided((windows.candidates, *values.shape), (values.numel(), *values.stride()))
    hits, count = stacked.unbind(0), torch.zeros_like(values, dtype=counting(values.dtype, windows))
    for entries, hit in zip(_looks(windows, x), hits, strict=True):
        count.add_(torch.eq(entries, values, out=hit))
    own = _left_to_torch(count, cotangent)
    if own is cotangent:
        return own, None
    _only.grad_input(_shares(cotangent, count).expand_as(stacked), stacked, 0.5, grad_input=stacked)
    gradient = torch.zeros_like(x)
    for entries, share in zip(reversed(_looks(windows, gradient)), reversed(hits), strict=True):
        entries.add_(share)
    for dim, before in zip(range(-1, -1 - dims, -1), windows.padding[::2], strict=False):
        gradient = gradient.narrow(dim, before, given.shape[dim])
    return own, laid_out(gradient, given)


def _looks(windows: Windows, padded: Tensor) -> list[Tensor]:
    """The first entries of all windows, their second ones, and so on."""
    dims, strides = len(windows.sizes), padded.stride()
    lines = [*zip(windows.slices, strides[-dims:], strict=True)]
    apart = [(line[1].start - line[0].start if len(line) > 1 else 0) * stride for line, stride in lines]
    steps = [line[0].step * stride for line, stride in lines]
    shape = (*(len(line) for line, _ in lines), *padded.shape[:-dims], *windows.shape)
    found = [padded.as_strided(shape, (*apart, *strides[:-dims], *steps))]
    for _ in lines:
        found = [entries for several in found for entries in several.unbind(0)]
    return found


def counting(dtype: torch.dtype, windows: Windows) -> torch.dtype:
    """Floating point that holds as many as a window has entries."""
    return torch.float64 if windows.candidates >= 1 << 24 else torch.promote_types(dtype, torch.float32)


def _shares(cotangent: Tensor, count: Tensor) -> Tensor:
    return (cotangent / count).to(cotangent.dtype)


def _left_to_torch(count: Tensor, cotangent: Tensor) -> Tensor | None:
    """All where no window ties; else that of windows of nan, to which no entry is equal."""
    least, most = count.aminmax()
    if float(most) <= 1:
        return cotangent
    return torch.where(count == 0, cotangent, 0) if float(least) == 0 else None
