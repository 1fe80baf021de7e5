"""Launching a Triton kernel in few microseconds: its front end would take longer than small kernels run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


@lru_cache(maxsize=1)
def triton_kernels() -> Any:
    """The Triton kernels; None without Triton, or where it does not work: the plain path is as right."""
    try:
        from subgrad.kernels import triton_kernels as kernels
    except Exception:
        return None
    return kernels


# Compiled kernels by all that Triton compiles anew for: types, constants, and what it assumes of numbers and pointers.
_compiled: dict[tuple[Any, ...], Any] = {}


def launch(name: str, programs: int, tensors: Sequence[Tensor], numbers: tuple[int, ...], constants: tuple) -> None:
    """Run the kernel ``name`` on the device of its first tensor."""
    device, pointers = tensors[0].device, 0
    for tensor in tensors:
        pointers |= tensor.data_ptr()
    with nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device):
        if pointers % 16:
            getattr(triton_kernels(), name)[programs,](*tensors, *numbers, *constants, num_warps=4)
            return
        key = (name, constants, _assumed(numbers), device.index, *[tensor.dtype for tensor in tensors])
        kernel = _compiled.get(key)
        if kernel is not None:
            kernel[programs, 1, 1](*tensors, *numbers, *constants)
            return
        kernel = getattr(triton_kernels(), name)[programs,](*tensors, *numbers, *constants, num_warps=4)
        _compiled[key] = kernel


@lru_cache(maxsize=4096)
def _assumed(numbers: tuple[int, ...]) -> tuple[tuple[bool, ...], ...]:
    return tuple((number == 1, number % 16 == 0, -(1 << 31) <= number < 1 << 31) for number in numbers)
