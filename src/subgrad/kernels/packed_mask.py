"""Masks on CUDA as bits: an eighth of the bytes that torch keeps for the backward of fake quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_memory
from subgrad.apply.fake_quantize import weighed
from subgrad.kernels import cuda_bitmask
from subgrad.kernels.bit_planes import Codes
from subgrad.kernels.cuda_bitmask import DTYPES, is_dense, weighing
from subgrad.kernels.piecewise import Coding, Weight
from subgrad.kernels.triton_launch import Launch, triton_kernels

SMALLEST = 1 << 16  # entries: of fewer, bits would spare less than 64 KiB and cost a launch
BLOCK = 4096  # entries that a program packs
# One corner, whose two sides weigh 0 and 1: the kernel of other masks reads these, too.
ZERO_OR_ONE = Coding(1, (0, 0, 1, 1, 1, 0), ((Weight.exact(0.0), Weight.exact(1.0)),), has_flags=False)


class PackedMask:
    """See `Keep` in `apply/fake_quantize.py`."""

    def accepts(self, value: Tensor, masks: Sequence[Tensor]) -> bool:
        if not value.is_cuda or not masks or value.dtype not in DTYPES or not is_memory(value):
            return False
        mode = cuda_bitmask.mode()
        if mode == "never" or value.numel() < (SMALLEST if mode == "auto" else 1) or triton_kernels() is None:
            return False
        return is_dense(value) and all(mask.stride() == value.stride() for mask in masks)

    def kept(self, masks: Sequence[Tensor]) -> Tensor:
        """The bits of one mask after those of the other, in the order of their memory."""
        size, device = masks[0].numel(), masks[0].device
        planes = torch.empty((len(masks), _lying(size, 4).bytes), dtype=torch.uint8, device=device)
        pack = packing(size)
        for mask, plane in zip(masks, planes, strict=True):
            pack(mask.view(torch.uint8), plane)
        return planes

    def weighed(self, kept: Tensor, weights: tuple[float, ...], layout: Any, cotangent: Tensor) -> Tensor:
        shape, stride = layout
        is_plain = is_memory(cotangent) and cotangent.is_cuda and not torch.is_grad_enabled()
        if weights == (1.0,) and is_plain and not torch.compiler.is_compiling() and cotangent.dtype in DTYPES:
            if cotangent.stride() != stride:
                cotangent = cotangent.new_empty_strided(shape, stride).copy_(cotangent)
            out = torch.empty_like(cotangent)
            reading(out.numel(), out.dtype.itemsize)(cotangent, kept[0], out, out)
            return out
        lying = _lying(cotangent.numel(), 4)
        return weighed([lying.unpacked(plane).as_strided(*layout).bool() for plane in kept], weights, layout, cotangent)


def _lying(size: int, width: int) -> Codes:
    return Codes(1, False, size, width)


@lru_cache(maxsize=1024)
def packing(size: int) -> Launch:
    """The kernel that writes the bits of a mask of so many entries."""
    return Launch("pack", -(-size // BLOCK), (size,), (BLOCK,))


@lru_cache(maxsize=1024)
def reading(size: int, width: int) -> Launch:
    """The kernel that hands on the cotangent where a bit is set."""
    return weighing(ZERO_OR_ONE, _lying(size, width))
