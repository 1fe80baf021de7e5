"""`max_pool2d` on CUDA: whether windows hold ties, in one pass, and a backward in which those that do share.

Torch's operators would take a pass for each place of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.gates import Gate, alias, is_memory, is_readable, outer_levels, through
from subgrad.apply.rule import Arguments
from subgrad.kernels.launch import launch, triton_kernels
from subgrad.kernels.packed import DTYPES
from subgrad.kinks.windows import of_call, regular

_BLOCK = 512
# Bits below say which entries of a window tie, those from here on how many.
_COUNT_AT = {torch.int16: 11, torch.int32: 26}
_NAMES = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


@dataclass(frozen=True)
class Geometry:
    """One call, as the kernels know it.

    Attributes:
        arguments: those after the input, as torch's own backward takes them.
        numbers: channels, heights and widths, padding and dilation.
        constants: steps, the size of a window, whether channels come last in memory.
    """

    arguments: tuple[Any, ...]
    numbers: tuple[int, ...]
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, x: Tensor, values: Tensor | None, arguments: Arguments) -> Geometry | None:
        """None for what the kernels are not made for."""
        if not x.is_cuda or x.dtype not in DTYPES or not is_readable(x) or triton_kernels() is None:
            return None
        # Three sizes: an image in space, which without a batch has four dimensions as well.
        if x.ndim not in (3, 4) or len(arguments["kernel_size"]) > 2 or not (values is None or is_memory(values)):
            return None
        tensors = [x] if values is None else [x, values]
        last = all(_is_channels_last(each) for each in tensors)
        if not last and not all(each.is_contiguous() for each in tensors):
            return None
        kernel, stride, padding, dilation, _ = given = tuple(arguments[name] for name in _NAMES)
        sizes = of_call(regular, {"self": x, **arguments}).shape if values is None else values.shape[-2:]
        kernel, steps, padding, dilation = (_pair(each) for each in (kernel, stride or kernel, padding, dilation))
        numbers = (x.shape[-3], *x.shape[-2:], *sizes, *padding, *dilation)
        return cls(given, numbers, (*steps, *kernel, last))

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.constants[-1] else torch.contiguous_format

    @property
    def is_shareable(self) -> bool:
        """Whether windows are not spread out, and a number has a bit for each of their entries, and their count."""
        return self.numbers[-2:] == (1, 1) and prod(self.constants[2:4]) <= _COUNT_AT[torch.int32]

    @property
    def windows(self) -> int:
        """In each plane."""
        return self.numbers[3] * self.numbers[4]

    def find_ties(self, x: Tensor, values: Tensor | None, bits: Tensor | None = None) -> Tensor:
        """How many windows are tied; and which."""
        tied = torch.zeros((), dtype=torch.int32, device=x.device)
        tensors = (x.detach(), x.detach() if values is None else values.detach(), tied, tied if bits is None else bits)
        count_at = 0 if bits is None else _COUNT_AT[bits.dtype]
        size = x.shape[:-2].numel() * self.windows
        self._launch("find_ties", size, x, tensors, self.numbers, count_at, values is not None)
        return tied

    def share(self, bits: Tensor, cotangent: Tensor, gradient: Tensor) -> None:
        tensors = (bits, cotangent, gradient)
        self._launch("share_windows", gradient.numel(), gradient, tensors, self.numbers[:-2], _COUNT_AT[bits.dtype])

    def look_ahead(self, x: Tensor, tangent: Tensor, values: Tensor, chosen: Tensor, flags: Tensor, last: bool) -> None:
        tensors = (x.detach(), tangent, values.detach(), chosen, flags)
        self._launch("look_ahead", values.numel(), x, tensors, self.numbers, last)

    def _launch(
        self, name: str, size: int, x: Tensor, tensors: Sequence[Tensor], numbers: tuple[int, ...], *more: Any
    ) -> None:
        index = triton_kernels().index_type(x.numel())
        launch(name, -(-size // _BLOCK), tensors, (size, *numbers), (*self.constants, index, *more, _BLOCK))


class OnCuda:
    """See `ForWindows`."""

    def ties(self, x: Tensor, values: Tensor | None, arguments: Arguments) -> Tensor | None:
        geometry = Geometry.of(x, values, arguments)
        return None if geometry is None else geometry.find_ties(x, values)

    def shared(self, x: Tensor, values: Tensor, indices: Tensor, arguments: Arguments) -> Tensor | None:
        geometry = Geometry.of(x, values, arguments)
        if geometry is None or not geometry.is_shareable or forward_ad._current_level >= 0:
            return None
        dtype = torch.int16 if prod(geometry.constants[2:4]) <= _COUNT_AT[torch.int16] else torch.int32
        bits = torch.empty_like(values, dtype=dtype)
        if not geometry.find_ties(x, values, bits).item():
            return values
        return through(_Shared, x, alias(values), indices, bits, geometry)

    def ahead(
        self, x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        geometry = Geometry.of(x, values, arguments)
        if geometry is None or not is_memory(tangent) or tangent.dtype is not x.dtype:
            return None
        chosen, flags = indices.clone(memory_format=geometry.layout), torch.zeros(2, dtype=torch.int32, device=x.device)
        geometry.look_ahead(x, tangent.contiguous(memory_format=geometry.layout), values, chosen, flags, last)
        return chosen, flags[0], flags[1]


class _Shared(Gate):
    """Torch's own backward for windows without ties, to the bit, and a pass over the entries for those with."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, indices: Tensor, bits: Tensor, geometry: Geometry) -> Tensor:
        ctx.geometry = geometry
        ctx.save_for_backward(x, indices, bits)  # not the values, which the program may overwrite
        with outer_levels():
            return alias(values)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, indices, bits = ctx.saved_tensors
        geometry: Geometry = ctx.geometry
        rest = torch.where(bits != 0, 0, cotangent)
        gradient = torch.ops.aten.max_pool2d_with_indices_backward(rest, x, *geometry.arguments, indices)
        # Dynamo, for compiled autograd, takes what it traces for plain tensors.
        is_plain = is_memory(cotangent) and cotangent.is_cuda and not torch.compiler.is_compiling()
        if torch.is_grad_enabled() or not is_plain:
            return gradient + _by_torch(x, bits, cotangent, geometry), None, None, None, None
        cotangent, gradient = (each.contiguous(memory_format=geometry.layout) for each in (cotangent, gradient))
        geometry.share(bits, cotangent, gradient)
        return gradient, None, None, None, None


def _by_torch(x: Tensor, bits: Tensor, cotangent: Tensor, geometry: Geometry) -> Tensor:
    """The shares with torch's operators, for cotangents that are differentiated, batched or traced."""
    positions, planes = regular(x, *geometry.arguments).positions, x.shape[:-2].numel()
    hits = [((bits >> number) & 1).reshape(planes, -1) for number in range(positions.shape[-1])]
    count = (bits >> _COUNT_AT[bits.dtype]).clamp(min=1)
    shares = (cotangent / count).reshape(planes, -1)
    found = x.new_zeros(planes, x.shape[-2:].numel())
    for hit, position in zip(hits, positions.unbind(-1), strict=True):
        found = found.index_add(1, position, torch.where(hit == 1, shares, 0))
    return found.view(x.shape)


def _is_channels_last(x: Tensor) -> bool:
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return (sizes[0], sizes[-1])
