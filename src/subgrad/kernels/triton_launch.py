"""Launching a Triton kernel in few microseconds: its front end would take longer than small kernels run.

And what the front needs to launch one itself, without Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor


@lru_cache(maxsize=1)
def triton_kernels() -> Any:
    """The Triton kernels; None without Triton, or where it does not work: the plain path is as right."""
    try:
        from subgrad.kernels import triton_bitmask as kernels
        from subgrad.kernels import triton_max_pool as pooling
    except Exception:
        return None
    return SimpleNamespace(**{**vars(kernels), **vars(pooling)})


# Compiled kernels by all that Triton compiles anew for: types, constants, and what it assumes of numbers and pointers.
_compiled: dict[tuple[Any, ...], Any] = {}


def launch(
    name: str, programs: int, tensors: Sequence[Tensor], numbers: tuple[int, ...], constants: tuple, warps: int = 4
) -> None:
    """Run the kernel ``name`` on the device of its first tensor."""
    device, pointers = tensors[0].device, 0
    for tensor in tensors:
        pointers |= tensor.data_ptr()
    with nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device):
        if pointers % 16:
            getattr(triton_kernels(), name)[programs,](*tensors, *numbers, *constants, num_warps=warps)
            return
        key = _key(name, tensors, numbers, constants, warps)
        kernel = _compiled.get(key)
        if kernel is not None:
            kernel[programs, 1, 1](*tensors, *numbers, *constants)
            return
        kernel = getattr(triton_kernels(), name)[programs,](*tensors, *numbers, *constants, num_warps=warps)
        _compiled[key] = kernel


def _key(
    name: str, tensors: Sequence[Tensor], numbers: tuple[int, ...], constants: tuple, warps: int = 4
) -> tuple[Any, ...]:
    return (name, constants, _assumed(numbers), warps, tensors[0].device.index, *[tensor.dtype for tensor in tensors])


@lru_cache(maxsize=4096)
def _assumed(numbers: tuple[int, ...]) -> tuple[tuple[bool, ...], ...]:
    return tuple((number == 1, number % 16 == 0, -(1 << 31) <= number < 1 << 31) for number in numbers)


class Compiled(NamedTuple):
    """A kernel as the driver launches it: for tensors at multiples of 16 bytes, of a size that 16 divides.

    Attributes:
        function: the driver's handle; it stays valid, since what is compiled is kept.
        threads, shared: of a program, and its bytes of shared memory.
        entries: how many a program does.
        parameters: in order, what each is (see `TENSOR` and the rest), and which one, or its value.
    """

    function: int
    threads: int
    shared: int
    entries: int
    parameters: list[tuple[int, int]]


TENSOR, SIZE, NUMBER = range(3)


def compiled(name: str, tensors: Sequence[Tensor], numbers: tuple[int, ...], constants: tuple) -> Compiled | None:
    """Compile a kernel, of which the first number is the size and the last constant the entries a program does.

    By a launch on these tensors, of a size that 16 divides. None where Triton does more than to launch.
    """
    launch(name, 1, tensors, numbers, constants)
    kernel = _compiled.get(_key(name, tensors, numbers, constants))
    if kernel is None:
        return None
    more = ("launch_pdl", "launch_cooperative_grid", "global_scratch_size", "profile_scratch_size")
    if kernel.metadata.num_ctas != 1 or any(getattr(kernel.metadata, each, False) for each in more):
        return None
    given = [(TENSOR, index) for index in range(len(tensors))] + [(SIZE, 0)]
    given += [(NUMBER, number) for number in numbers[1:]] + [(NUMBER, 0)] * len(constants)
    types = kernel.src.signature.values()  # constants are no parameters, and numbers are none where they are 1
    parameters = [each for each, of in zip(given, types, strict=True) if of != "constexpr"]
    threads = 32 * kernel.metadata.num_warps
    return Compiled(kernel.function, threads, kernel.metadata.shared, constants[-1], parameters)
