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
from subgrad.kinks.windows import regular

_BLOCK = 512
_NAMES = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


@dataclass(frozen=True)
class Geometry:
    """One call, as the kernels know it.

    Attributes:
        arguments: those after the input, as torch's own backward takes them.
        numbers: channels, heights and widths, steps, padding and dilation.
        constants: the size of a window, and whether channels come last in memory.
    """

    arguments: tuple[Any, ...]
    numbers: tuple[int, ...]
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, x: Tensor, values: Tensor, arguments: Arguments) -> Geometry | None:
        """None for what the kernels are not made for."""
        if not values.is_cuda or x.dtype not in DTYPES or not is_memory(x) or not is_readable(values):
            return None
        last = _is_channels_last(x) and _is_channels_last(values)
        if triton_kernels() is None or x.ndim not in (3, 4):
            return None
        if not (last or (x.is_contiguous() and values.is_contiguous())):
            return None
        kernel, stride, padding, dilation, _ = given = tuple(arguments[name] for name in _NAMES)
        kernel, *rest = (_pair(each) for each in (kernel, stride or kernel, padding, dilation))
        numbers = (x.shape[-3], *x.shape[-2:], *values.shape[-2:], *(number for pair in rest for number in pair))
        return cls(given, numbers, (*kernel, last))

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.constants[-1] else torch.contiguous_format

    def launch(self, name: str, size: int, tensors: Sequence[Tensor], *constants: Any) -> None:
        launch(name, -(-size // _BLOCK), tensors, (size, *self.numbers), (*self.constants, *constants, _BLOCK))


def ties(x: Tensor, values: Tensor, arguments: Arguments) -> Tensor | None:
    """Whether any window of `max_pool2d` holds its largest entry twice, as a flag on the device; None if not seen."""
    geometry = Geometry.of(x, values, arguments)
    if geometry is None:
        return None
    found = torch.zeros((), dtype=torch.int32, device=x.device)
    geometry.launch("find_ties", values.numel(), (x.detach(), values.detach(), found, found), False)
    return found


def shared(x: Tensor, values: Tensor, indices: Tensor, arguments: Arguments) -> Tensor | None:
    """The values, with a derivative that tied windows share among their largest entries; None if not made for it."""
    geometry = Geometry.of(x, values, arguments)
    if geometry is None or forward_ad._current_level >= 0 or prod(geometry.constants[:2]) > 255:
        return None
    counts = torch.empty_like(values, dtype=torch.uint8)
    geometry.launch("find_ties", values.numel(), (x.detach(), values.detach(), counts, counts), True)
    return through(_Shared, x, alias(values), indices.contiguous(memory_format=geometry.layout), counts, geometry)


class _Shared(Gate):
    """Torch's own backward for windows without ties, to the bit, and a pass over the entries for those with."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, indices: Tensor, counts: Tensor, geometry: Geometry) -> Tensor:
        ctx.geometry = geometry
        ctx.save_for_backward(x, indices, counts)  # not the values, which the program may overwrite
        with outer_levels():
            return alias(values)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, indices, counts = ctx.saved_tensors
        geometry: Geometry = ctx.geometry
        rest = torch.where(counts > 1, 0, cotangent)
        gradient = torch.ops.aten.max_pool2d_with_indices_backward(rest, x, *geometry.arguments, indices)
        # Dynamo, for compiled autograd, takes what it traces for plain tensors.
        is_plain = is_memory(cotangent) and cotangent.is_cuda and not torch.compiler.is_compiling()
        if torch.is_grad_enabled() or not is_plain:
            return gradient + _by_torch(x, indices, counts, cotangent, geometry), None, None, None, None
        cotangent, gradient = (each.contiguous(memory_format=geometry.layout) for each in (cotangent, gradient))
        geometry.launch("share_windows", x.numel(), (x.detach(), indices, counts, cotangent, gradient))
        return gradient, None, None, None, None


def _by_torch(x: Tensor, indices: Tensor, counts: Tensor, cotangent: Tensor, geometry: Geometry) -> Tensor:
    """The shares with torch's operators, for cotangents that are differentiated, batched or traced."""
    windows, planes = regular(x, *geometry.arguments), x.detach().reshape(-1, x.shape[-2:].numel())
    selected = planes.gather(1, indices.reshape(len(planes), -1))
    shares = torch.where(counts > 1, cotangent / counts.clamp(min=1), 0).reshape(len(planes), -1)
    found = torch.zeros_like(planes)
    for position, exists in zip(windows.positions.unbind(-1), windows.valid.unbind(-1), strict=True):
        hits = (planes[:, position] == selected) & exists
        found = found.index_add(1, position, torch.where(hits, shares, 0))
    return found.view(x.shape)


def _is_channels_last(x: Tensor) -> bool:
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return (sizes[0], sizes[-1])
