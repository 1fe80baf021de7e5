"""On CUDA: how many entries lie on the corners of an operator, in one pass that writes nothing but the counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_readable
from subgrad.kernels.cuda_bitmask import DTYPES, is_dense
from subgrad.kernels.piecewise import as_bits
from subgrad.kernels.triton_launch import launch, triton_kernels

_BLOCK = 4096
_MOST = 2  # places


def count_at(x: Tensor, places: Sequence[float]) -> Tensor | None:
    """See `apply.corner_scan`."""
    if not 0 < len(places) <= _MOST or x.dtype not in DTYPES or not x.numel():
        return None
    if not is_readable(x) or not is_dense(x) or triton_kernels() is None:
        return None
    return counted(x, places)


def counted(x: Tensor, places: Sequence[float]) -> Tensor:
    counts, size = torch.zeros(len(places), dtype=torch.int64, device=x.device), x.numel()
    numbers = (size, as_bits(places[0]), as_bits(places[-1]))
    constants = (len(places), triton_kernels().index_type(size), _BLOCK)
    launch("count_hits", -(-size // _BLOCK), (x.detach(), counts), numbers, constants)
    return counts
