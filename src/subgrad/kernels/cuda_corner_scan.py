"""On CUDA: how many entries lie on the corners of an operator, in one pass that writes nothing but the counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_readable
from subgrad.kernels.cuda_bitmask import DTYPES, is_dense
from subgrad.kernels.piecewise import as_bits
from subgrad.kernels.triton_launch import Launch, triton_kernels

_BLOCK = 4096
_MOST = 2  # places


def count_at(x: Tensor, places: Sequence[float], together: bool = False) -> Tensor | None:
    """How many entries equal each of some numbers, which the tensor's type holds, or any of them ``together``.

    The counts are on the device, not synchronised; None for tensors that the kernel is not made for.
    """
    if not x.is_cuda or not 0 < len(places) <= _MOST or x.dtype not in DTYPES or not x.numel():
        return None
    if not is_readable(x) or not is_dense(x) or triton_kernels() is None:
        return None
    return counted(x, tuple(places), together)


def counted(x: Tensor, places: tuple[float, ...], together: bool) -> Tensor:
    counts = torch.zeros(() if together else len(places), dtype=torch.int64, device=x.device)
    _scan(x.numel(), x.dtype, x.device, places, together)(x.detach(), counts)
    return counts


@lru_cache(maxsize=1024)
def _scan(size: int, dtype: torch.dtype, device: torch.device, places: tuple[float, ...], together: bool) -> Launch:
    """For tensors of one size; dtype and device since what is launched is kept for one of each."""
    numbers = (size, as_bits(places[0]), as_bits(places[-1]))
    constants = (len(places), 0 if together else 1, triton_kernels().index_type(size), _BLOCK)
    return Launch("count_hits", -(-size // _BLOCK), numbers, constants)
