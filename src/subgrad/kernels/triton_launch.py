"""Launching a Triton kernel in few microseconds: its front end would take longer than small kernels run.

And what the C++ part needs to launch one itself, without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache, partial, reduce
from operator import or_
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.torch_internals.cuda import current_device, current_stream, launch_kernel
from subgrad.torch_internals.lookup import Missing

_TYPES = {"i32": "i", "i64": "l", "u32": "I", "u64": "K"}  # of numbers, as Triton and torch's launcher call them
_is_only_one = cache(lambda: torch.cuda.device_count() == 1)


@lru_cache(maxsize=1)
def triton_kernels() -> Any:
    """The Triton kernels; None without Triton, or where it does not work: the plain path is as right."""
    try:
        from subgrad.kernels import triton_bitmask as kernels
        from subgrad.kernels import triton_max_pool as pooling
        from subgrad.kernels import triton_strong_zero as strong_zero
    except Exception:
        return None
    return SimpleNamespace(**{**vars(kernels), **vars(pooling), **vars(strong_zero)})


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


class Launch:
    """A kernel with its numbers and constants, launched again and again on tensors of the same dtypes and device."""

    def __init__(self, name: str, programs: int, numbers: tuple[int, ...], constants: tuple, warps: int = 4):
        self.name, self.programs, self.numbers, self.constants, self.warps = name, programs, numbers, constants, warps
        # For pointers to multiples of 16 bytes on one device: what launches the kernel, and what follows the pointers.
        self.run: Callable[[tuple[Any, ...], int], None] | None = None
        self.rest: tuple[int | None, ...] = ()
        self.device = -1

    def __call__(self, *tensors: Tensor) -> None:
        pointers = (*map(Tensor.data_ptr, tensors),)
        is_aligned = not reduce(or_, pointers) % 16
        if self.run is not None and is_aligned and (_is_only_one() or current_device() == self.device):
            self.run(pointers + self.rest, current_stream(self.device))
            return
        launch(self.name, self.programs, tensors, self.numbers, self.constants, self.warps)
        if is_aligned and not isinstance(launch_kernel, Missing):
            self._prepare(tensors)

    def _prepare(self, tensors: Sequence[Tensor]) -> None:
        """Past Triton, whose launchers take a dozen frames of Python."""
        kernel = self._plain_kernel(tensors)
        types = [] if kernel is None else [each for each in kernel.src.signature.values() if each != "constexpr"]
        if kernel is None or not all(each in _TYPES for each in types[len(tensors) :]):
            return
        numbers = [value for kind, value in self._parameters(kernel, len(tensors)) if kind == NUMBER]
        # Two more pointers, to memory that Triton's kernels may have for themselves, and these do not.
        names = "O" * len(tensors) + "".join(_TYPES[each] for each in types[len(tensors) :]) + "OO"
        grid, held = (self.programs, 1, 1), (kernel.metadata.num_warps, kernel.metadata.shared)
        self.run, self.rest = partial(launch_kernel, kernel.function, *grid, *held, names), (*numbers, None, None)
        self.device = tensors[0].device.index

    def compiled(self, *tensors: Tensor, for_any_size: bool = False) -> Compiled | None:
        """The kernel, by a launch on these tensors, as the driver launches it. None where Triton does more than that.

        ``for_any_size`` the first number is the size, which 16 divides, and the last constant a program's share of it.
        """
        self(*tensors)
        kernel = self._plain_kernel(tensors)
        if kernel is None:
            return None
        parameters = self._parameters(kernel, len(tensors))
        if for_any_size:
            parameters[len(tensors)] = (SIZE, 0)
        grid = (0, self.constants[-1]) if for_any_size else (self.programs, 0)
        return Compiled(kernel.function, 32 * kernel.metadata.num_warps, kernel.metadata.shared, *grid, parameters)

    def _plain_kernel(self, tensors: Sequence[Tensor]) -> Any:
        """What Triton has compiled for such tensors, unless it does more than to launch it."""
        kernel = _compiled.get(_key(self.name, tensors, self.numbers, self.constants, self.warps))
        if kernel is None or kernel.metadata.num_ctas != 1:
            return None
        more = ("launch_pdl", "launch_cooperative_grid", "global_scratch_size", "profile_scratch_size")
        return None if any(getattr(kernel.metadata, each, False) for each in more) else kernel

    def _parameters(self, kernel: Any, tensors: int) -> list[tuple[int, int]]:
        """What each is: constants are none, nor are numbers that are 1."""
        given = [(TENSOR, index) for index in range(tensors)] + [(NUMBER, number) for number in self.numbers]
        given += [(NUMBER, 0)] * len(self.constants)
        return [each for each, of in zip(given, kernel.src.signature.values(), strict=True) if of != "constexpr"]


class Compiled(NamedTuple):
    """A kernel as the driver launches it: for tensors at multiples of 16 bytes.

    Attributes:
        function: the driver's handle; it stays valid, since what is compiled is kept.
        threads, shared: of a program, and its bytes of shared memory.
        programs: how many there are; 0 where that depends on the size, which 16 divides.
        entries: how many of the size a program then does.
        parameters: in order, what each is (see `TENSOR` and the rest), and which one, or its value.
    """

    function: int
    threads: int
    shared: int
    programs: int
    entries: int
    parameters: list[tuple[int, int]]


TENSOR, SIZE, NUMBER = range(3)
