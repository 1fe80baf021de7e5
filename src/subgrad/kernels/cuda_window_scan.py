"""`max_pool2d` on CUDA: whether windows hold ties, and which of the tied entries gets ahead, in one pass.

Torch's operators would take a pass for each place of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Geometry:
    """One call, as the kernels know it.

    Attributes:
        numbers: channels, heights and widths, padding and dilation.
        constants: steps, the size of a window, whether channels come last in memory.
    """

    numbers: tuple[int, ...]
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, x: Tensor, values: Tensor, arguments: Arguments) -> Geometry | None:
        """None for what the kernels are not made for."""
        if not x.is_cuda or x.dtype not in DTYPES or not is_readable(x) or triton_kernels() is None:
            return None
        # Three sizes: an image in space, which without a batch has four dimensions as well.
        if x.ndim not in (3, 4) or len(arguments["kernel_size"]) > 2 or not is_memory(values):
            return None
        last = _is_channels_last(x) and _is_channels_last(values)
        if not last and not (x.is_contiguous() and values.is_contiguous()):
            return None
        kernel, stride, padding, dilation = (arguments[name] for name in _NAMES)
        kernel, steps, padding, dilation = (_pair(each) for each in (kernel, stride or kernel, padding, dilation))
        numbers = (x.shape[-3], *x.shape[-2:], *values.shape[-2:], *padding, *dilation)
        return cls(numbers, (*steps, *kernel, last))

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.constants[-1] else torch.contiguous_format

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

    def ties(self, x: Tensor, arguments: Arguments) -> Tensor | None:
        if not x.is_cuda or x.dtype not in DTYPES or not is_readable(x) or triton_kernels() is None:
            return None
        geometry = geometry_of(x, arguments)
        return None if geometry is None else geometry.tied(x.detach()).count_nonzero()

    def ahead(
        self, x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        geometry = Geometry.of(x, values, arguments)
        if geometry is None or not is_memory(tangent) or tangent.dtype is not x.dtype:
            return None
        chosen, flags = indices.clone(memory_format=geometry.layout), torch.zeros(2, dtype=torch.int32, device=x.device)
        geometry.look_ahead(x, tangent.contiguous(memory_format=geometry.layout), values, chosen, flags, last)
        return chosen, flags[0], flags[1]


def _is_channels_last(x: Tensor) -> bool:
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return (sizes[0], sizes[-1])
