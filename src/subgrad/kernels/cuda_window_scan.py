"""`max_pool2d` on CUDA: whether windows hold ties, and which of the tied entries gets ahead, in one pass.

Torch's operators would take a pass for each place of a window. What is found stays on the device, not synchronised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_memory, is_readable
from subgrad.apply.call import Arguments
from subgrad.kernels.cuda_bitmask import DTYPES
from subgrad.kernels.max_pool import geometry_of
from subgrad.kernels.triton_launch import launch, triton_kernels

_BLOCK = 512
_NAMES = ("kernel_size", "stride", "padding", "dilation")


def _is_for(x: Tensor) -> bool:
    return x.is_cuda and x.dtype in DTYPES and is_readable(x) and triton_kernels() is not None


def tied_windows(x: Tensor, arguments: Arguments) -> Tensor | None:
    """See `window_scan`."""
    geometry = geometry_of(x, arguments) if _is_for(x) else None
    return None if geometry is None else geometry.tied(x.detach()).count_nonzero()


def look_ahead(
    x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """See `window_scan`."""
    # Three sizes: an image in space, which without a batch has four dimensions as well.
    if not _is_for(x) or x.ndim not in (3, 4) or len(arguments["kernel_size"]) > 2:
        return None
    if not is_memory(values) or not is_memory(tangent) or tangent.dtype is not x.dtype:
        return None
    channels_last = _is_channels_last(x) and _is_channels_last(values)
    if not channels_last and not (x.is_contiguous() and values.is_contiguous()):
        return None
    layout = torch.channels_last if channels_last else torch.contiguous_format
    kernel, stride, padding, dilation = (arguments[name] for name in _NAMES)
    kernel, steps, padding, dilation = (_pair(each) for each in (kernel, stride or kernel, padding, dilation))
    numbers = (values.numel(), x.shape[-3], *x.shape[-2:], *values.shape[-2:], *padding, *dilation)
    constants: tuple[Any, ...] = (*steps, *kernel, channels_last, triton_kernels().index_type(x.numel()), last, _BLOCK)
    chosen, flags = indices.clone(memory_format=layout), torch.zeros(2, dtype=torch.int32, device=x.device)
    tensors = (x.detach(), tangent.contiguous(memory_format=layout), values.detach(), chosen, flags)
    launch("look_ahead", -(-values.numel() // _BLOCK), tensors, numbers, constants)
    return chosen, flags[0], flags[1]


def _is_channels_last(x: Tensor) -> bool:
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return (sizes[0], sizes[-1])
