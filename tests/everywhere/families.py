"""Small programs that land on kinks, one per family of rows: corners of one tensor, ties, norms at 0, selections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Program:
    """A function of tensors and the values it is differentiated at: numbers that even 8 bits of mantissa hold."""

    function: Function
    values: tuple[Tensor, ...]

    def on(self, device: str) -> Program:
        return Program(self.function, tuple(value.to(device) for value in self.values))

    def leaves(self, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [value.to(dtype, copy=True).requires_grad_() for value in self.values]


def cotangents(outputs: Sequence[Tensor]) -> list[Tensor]:
    """One for each output: no two entries alike, both signs."""
    return [
        (torch.arange(out.numel(), device=out.device) - 2.5).reshape(out.shape).to(out.dtype) / 4 for out in outputs
    ]


def corners(x: Tensor) -> tuple[Tensor, ...]:
    return torch.clamp(x, 0.0, 6.0), torch.relu(x), torch.abs(x), F.hardtanh(x, -1.0, 3.0)


def more_corners(x: Tensor) -> tuple[Tensor, ...]:
    return F.leaky_relu(x, 0.5), F.softshrink(x, 3.0), F.threshold(x, 0.0, 0.0), F.hardsigmoid(x), F.elu(x, 2.0)


def in_place(x: Tensor) -> tuple[Tensor, ...]:
    return (x * 1).relu_(), (x * 1).clamp_(0.0, 6.0), (x * 1).abs_()


def ties(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.clamp(x, y, y + 3), torch.max(x, y)


def norms(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (torch.hypot(x, y),)


def selections(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.max(-1).values,
        x.amax(-1),
        x.sort(-1).values,
        x.topk(2, -1).values,
        x.cummax(-1).values,
        F.max_pool2d(x.reshape(1, 1, *x.shape), 2),
    )


_X = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0, -3.0])
FAMILIES = {
    "corners": Program(corners, (_X,)),
    "corners with slopes": Program(more_corners, (_X,)),
    "in place": Program(in_place, (_X,)),
    "ties": Program(ties, (torch.tensor([0.0, 1.0, 2.0, 5.0]), torch.tensor([0.0, 0.5, 2.0, 2.0]))),
    "norms at 0": Program(norms, (torch.tensor([0.0, 3.0, 0.0]), torch.tensor([0.0, 4.0, 5.0]))),
    "selections": Program(selections, (torch.tensor([[1.0, 2.0, 2.0, 0.0], [2.0, 2.0, 0.0, 2.0]]),)),
}
