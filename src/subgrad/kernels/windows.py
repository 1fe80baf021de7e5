"""Whether any window of a pooling holds ties: one pass on CUDA, where torch's operators take one for each place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from subgrad.apply.gates import is_memory, is_readable
from subgrad.apply.rule import Arguments
from subgrad.kernels.launch import launch, triton_kernels
from subgrad.kernels.packed import DTYPES

_BLOCK = 512


def ties(x: Tensor, values: Tensor, arguments: Arguments) -> Tensor | None:
    """Whether any window of `max_pool2d` holds its largest entry twice, as a flag on the device; None if not seen."""
    if not values.is_cuda or x.dtype not in DTYPES or not is_memory(x) or not is_readable(values):
        return None
    if triton_kernels() is None:
        return None
    kernel, last = arguments["kernel_size"], _is_channels_last(x) and _is_channels_last(values)
    if x.ndim not in (3, 4) or not (last or (x.is_contiguous() and values.is_contiguous())):
        return None
    kernel, steps, pads, dilations = (
        _pair(each) for each in (kernel, arguments["stride"] or kernel, arguments["padding"], arguments["dilation"])
    )
    found = torch.zeros((), dtype=torch.int32, device=x.device)
    numbers = (values.numel(), x.shape[-3], *x.shape[-2:], *values.shape[-2:], *steps, *pads, *dilations)
    programs = -(-values.numel() // _BLOCK)
    launch("find_ties", programs, (x.detach(), values.detach(), found), numbers, (*kernel, last, _BLOCK))
    return found


def _is_channels_last(x: Tensor) -> bool:
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return (sizes[0], sizes[-1])
