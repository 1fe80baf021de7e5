"""One call of every family of rows, and how many of its places lie on the kink, counted by hand in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Array = np.ndarray


@dataclass(frozen=True)
class Family:
    """A call, and by kink the number of places and of hits. ``wide``: on the CPU torch has it in 32 bits only."""

    call: Callable[[Tensor, Tensor], object]
    counts: Callable[[Array, Array], dict[str, tuple[int, int]]]
    wide: bool = False


def on(mask: Array) -> tuple[int, int]:
    return mask.size, int(mask.sum())


def times(lines: Array, value: Array) -> Array:
    """How often each line holds a value."""
    return (lines == value[..., None]).sum(-1)


def occurring(lines: Array, chosen: Array) -> Array:
    """How often each of the chosen occurs in its line."""
    return (lines[..., None, :] == chosen[..., :, None]).sum(-1)


def windows(x: Array, size: int) -> Array:
    """Windows of a side, side by side."""
    n, h, w = x.shape
    return x.reshape(n, h // size, size, w // size, size).swapaxes(2, 3).reshape(n, h // size, w // size, -1)


def halves(x: Array) -> Array:
    """The columns of the upper and of the lower half."""
    return x.reshape(2, 4, 8).swapaxes(1, 2)


def running(x: Array) -> Array:
    """Which entries meet the largest of those before them."""
    return x[:, 1:] == np.maximum.accumulate(x, 1)[:, :-1]


# Of x, 8 by 8, and y, of the same shape: small integers, so that both dtypes hold all of it exactly.
FAMILIES: dict[str, Family] = {
    # corners
    "relu": Family(lambda x, y: torch.relu(x), lambda x, y: {"self == 0": on(x == 0)}),
    "relu_": Family(lambda x, y: torch.relu_(x * 1), lambda x, y: {"self == 0": on(x == 0)}),
    "relu6": Family(lambda x, y: F.relu6(x), lambda x, y: {"self == 0": on(x == 0), "self == 6": on(x == 6)}),
    "clamp": Family(lambda x, y: x.clamp(-1, 2), lambda x, y: {"self == min": on(x == -1), "self == max": on(x == 2)}),
    "hardswish": Family(lambda x, y: F.hardswish(x), lambda x, y: {"self == -3": on(x == -3), "self == 3": on(x == 3)}),
    "prelu": Family(
        lambda x, y: F.prelu(x, torch.tensor([0.25], dtype=x.dtype)), lambda x, y: {"self == 0": on(x == 0)}
    ),
    # ties between tensors, of one shape and not
    "maximum": Family(lambda x, y: torch.maximum(x, y), lambda x, y: {"self == other": on(x == y)}),
    "minimum": Family(lambda x, y: torch.minimum(x, y[0]), lambda x, y: {"self == other": on(x == y[0])}),
    "clamp, bounds that are tensors": Family(
        lambda x, y: torch.clamp(x, y, y + 2),
        lambda x, y: {
            "(self == min) & (min < max)": on(x == y),
            "(self == max) & (min < max)": on(x == y + 2),
            "(self < min) & (min == max)": on(np.zeros_like(x, dtype=bool)),
            "(self == min) & (min == max)": on(np.zeros_like(x, dtype=bool)),
        },
    ),
    # norms
    "hypot": Family(
        lambda x, y: torch.hypot(x, y), lambda x, y: {"(self == 0) & (other == 0)": on((x == 0) & (y == 0))}
    ),
    "norm": Family(lambda x, y: x[:, :2].norm(dim=1), lambda x, y: {"the zero vector": on((x[:, :2] == 0).all(1))}),
    "dist": Family(lambda x, y: torch.dist(x, x.detach() * 1), lambda x, y: {"the zero vector": (1, 1)}),
    # ties inside a tensor
    "amax": Family(lambda x, y: x.amax(1), lambda x, y: {"a tie": on(times(x, x.max(1)) > 1)}),
    "max over a dimension": Family(lambda x, y: x.max(1), lambda x, y: {"a tie": on(times(x, x.max(1)) > 1)}),
    "median": Family(
        lambda x, y: x.median(1), lambda x, y: {"a tie": on(times(x, np.sort(x, 1)[:, (x.shape[1] - 1) // 2]) > 1)}
    ),
    "sort": Family(lambda x, y: x.sort(1), lambda x, y: {"a tie": on(occurring(x, x) > 1)}),
    "topk": Family(lambda x, y: x.topk(3, 1), lambda x, y: {"a tie": on(occurring(x, -np.sort(-x, 1)[:, :3]) > 1)}),
    "cummax": Family(lambda x, y: x.cummax(1), lambda x, y: {"a tie with the running extreme": on(running(x))}),
    "max_pool2d": Family(
        lambda x, y: F.max_pool2d(x[None, None], 2),
        lambda x, y: {"a tie in a window": on(times(windows(x[None], 2), windows(x[None], 2).max(-1)) > 1)},
    ),
    # losses
    "smooth_l1_loss": Family(
        lambda x, y: torch.ops.aten.smooth_l1_loss(x, y, 1, 0.0), lambda x, y: {"self == target": on(x == y)}
    ),
    "multi_margin_loss": Family(
        lambda x, y: F.multi_margin_loss(x, torch.arange(8, device=x.device)),
        lambda x, y: {"a class on the margin": on((1 - np.diag(x)[:, None] + x == 0) & ~np.eye(8, dtype=bool))},
        wide=True,
    ),
    # scattered, in bags and segments
    "scatter_reduce": Family(
        lambda x, y: x.scatter_reduce(1, torch.arange(7, -1, -1, device=x.device).expand(8, 8), y, "amax"),
        lambda x, y: {"a tie": on(x == y[:, ::-1])},
    ),
    "embedding_bag": Family(
        lambda x, y: F.embedding_bag(
            torch.arange(8, device=x.device), x, torch.tensor([0, 4], device=x.device), mode="max"
        ),
        lambda x, y: {"a tie in a bag": on(times(halves(x), halves(x).max(-1)) > 1)},
    ),
    "segment_reduce": Family(
        lambda x, y: torch.segment_reduce(x, "max", lengths=torch.tensor([4, 4], device=x.device)),
        lambda x, y: {"a tie in a segment": on(times(halves(x), halves(x).max(-1)) > 1)},
    ),
    # distances, deviations, spectra, cells
    "cdist": Family(
        lambda x, y: torch.cdist(x[:, :2], y[:, :2]),
        lambda x, y: {"the zero vector": on((x[:, None, :2] == y[None, :, :2]).all(-1))},
        wide=True,
    ),
    "std": Family(lambda x, y: x[:, :2].std(1), lambda x, y: {"all entries equal": on(x[:, 0] == x[:, 1])}),
    "eigvalsh": Family(
        lambda x, y: torch.linalg.eigvalsh(torch.diag_embed(x[:, :3])),
        lambda x, y: {"repeated or vanishing values": on((occurring(x[:, :3], x[:, :3]) > 1).any(-1))},
        wide=True,
    ),
    "grid_sample": Family(  # the pixels of a line of 5 are half a coordinate apart: x / 2 + 2
        lambda x, y: F.grid_sample(x.new_zeros(1, 1, 5, 5), x.reshape(1, 4, 8, 2) / 4, align_corners=True),
        lambda x, y: {"a border of cells": on(x % 2 == 0)},
    ),
    # jumps
    "sign": Family(lambda x, y: torch.sign(x), lambda x, y: {"self == 0": on(x == 0)}),
    "sqrt": Family(lambda x, y: torch.sqrt(x), lambda x, y: {"self == 0": on(x == 0)}),
    "round": Family(lambda x, y: torch.round(x / 2), lambda x, y: {"self - self.floor() == 0.5": on(x % 2 == 1)}),
    # comparisons
    "gt": Family(lambda x, y: x > 0, lambda x, y: {"self == other": on(x == 0)}),
    "le": Family(lambda x, y: x <= y, lambda x, y: {"self == other": on(x == y)}),
    "a mask": Family(lambda x, y: (x * 1).masked_fill(x < 1, 0), lambda x, y: {"self == other": on(x == 1)}),
}
