"""Poolings whose windows lie side by side, overlap, reach over the border, are spread out, and differ in size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NAMES = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
POOLINGS = {
    "side by side": ([2, 2], [], [0, 0], [1, 1], False),
    "overlapping": ([3, 3], [2, 2], [1, 1], [1, 1], True),
    "large": ([4, 5], [3, 2], [2, 0], [1, 1], False),
    "spread out": ([2, 3], [1, 2], [0, 1], [2, 1], False),
}
# Those that have kernels of their own on CUDA, and the adaptive ones by their sizes.
ALL_POOLINGS: dict[str, tuple[Any, ...]] = {
    **POOLINGS,
    "one apart": ([3, 3], [1, 1], [1, 1], [1, 1], False),
    "far apart": ([2, 2], [3, 4], [1, 1], [1, 1], False),
    "spread out, over the border": ([3, 2], [4, 1], [1, 1], [3, 1], True),
    "a line": ([1, 3], [1, 2], [0, 1], [1, 1], True),
    "every bit": ([8, 8], [8, 4], [2, 0], [1, 1], False),
    "adaptive": ([5, 7],),
    "adaptive, even": ([3, 4],),
    "adaptive, more than there are": ([11, 15],),
    "in space": ([2, 2, 2], [], [0], [1], False),
    "in space, overlapping": ([3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1], True),
    "in space, adaptive": ([2, 4, 5],),
    "more entries than bits": ([9, 9], [2, 3], [4, 4], [1, 1], True),
    "more entries than bits, spread out": ([9, 8], [1, 1], [4, 4], [1, 2], False),
    "very far apart": ([1, 1], [8, 9], [0, 0], [1, 1], False),
    "one window": ([1, 1],),
    "in space, more entries than bits": ([5, 5, 5], [1, 2, 3], [2, 2, 2], [1, 1, 1], True),
    "in space, adaptive, large": ([1, 4, 1],),
}
LARGE = list(ALL_POOLINGS)[-6:]
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def integers(dtype: torch.dtype, device: str, layout: torch.memory_format = torch.contiguous_format) -> Tensor:
    """Few different numbers, so that most windows are tied; nan among them."""
    x = torch.randint(-2, 2, (2, 3, 9, 12), generator=torch.Generator().manual_seed(0)).to(device, dtype)
    x[0, 1, 4, 5] = float("nan")
    return x.contiguous(memory_format=layout)


def distinct(device: str, layout: torch.memory_format) -> Tensor:
    x = torch.randperm(2 * 3 * 9 * 12, generator=torch.Generator().manual_seed(0)).float().view(2, 3, 9, 12)
    return x.to(device).contiguous(memory_format=layout)


def pooled(x: Tensor, pooling: tuple[Any, ...]) -> Tensor:
    return torch.ops.aten.max_pool2d_with_indices(x, *pooling)[0]


def arguments_of(name: str) -> dict[str, Any]:
    """Those after the input, of one of all poolings."""
    given = ALL_POOLINGS[name]
    return {"output_size": given[0]} if len(given) == 1 else dict(zip(NAMES, given, strict=True))


def input_of(
    name: str,
    dtype: torch.dtype,
    device: str,
    layout: str,
    tied: bool = True,
    planes: tuple[int, int] = (2, 3),
) -> Tensor:
    """For one of all poolings: of few numbers, with windows of nan, both zeros, and nothing but -inf; or distinct."""
    generator = torch.Generator().manual_seed(1)
    shape = (*planes, 5, 6, 7) if "in space" in name else (*planes, 9, 12)
    if tied:
        x = torch.randint(-2, 2, shape, generator=generator).to(dtype)
        flat = x.view(-1)
        flat[5] = flat[6] = float("nan")
        flat[20:60], flat[100:120:3] = float("-inf"), -0.0
    else:
        x = (torch.randperm(torch.Size(shape).numel(), generator=generator).view(shape) / 7).to(dtype)
    last = torch.channels_last_3d if len(shape) == 5 else torch.channels_last
    return x.to(device).contiguous(memory_format=last if layout == "channels_last" else torch.contiguous_format)


def pooled_with_indices(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """One of all poolings, by torch's own overload."""
    given, dims = ALL_POOLINGS[name], 3 if "in space" in name else 2
    op = f"adaptive_max_pool{dims}d" if len(given) == 1 else f"max_pool{dims}d_with_indices"
    return getattr(torch.ops.aten, op)(x, *given)
