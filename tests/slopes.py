"""The slope of relu at 0, by which tests see which convention is in force."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

COTANGENT = torch.tensor([3.0, -0.5, 2.0])
# relu at 0. Torch's own is 0 too, so that tests of what is in force use "right" and "mean".
SLOPES = {"left": 0.0, "right": 1.0, "mean": 0.5}
TORCH, RIGHT, MEAN = 0.0, SLOPES["right"], SLOPES["mean"]


def forward() -> tuple[Tensor, Tensor]:
    x = torch.zeros(3, requires_grad=True)
    return x, torch.relu(x)


def backward(x: Tensor, out: Tensor) -> float:
    """The one slope that all entries of the gradient show."""
    (gradient,) = torch.autograd.grad(out, x, COTANGENT)
    (slope,) = set((gradient / COTANGENT).tolist())
    return slope


def slope() -> float:
    """The slope of relu at 0, here and now."""
    return backward(*forward())


def in_new_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
