"""Poolings whose windows lie side by side, overlap, reach over the border, and are spread out."""

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
