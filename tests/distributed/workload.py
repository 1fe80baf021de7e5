"""What is run in two processes, and here in one: a network, and single operators.

Weights, inputs and cotangents are small integers, so that kinks are met exactly and sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad

CONVENTIONS = [
    *map(subgrad.Convention, ("min-norm", "documented", "torch", "torch-2.13", "torch-2.14")),
    *map(subgrad.Convention, ("left", "right", "mean", "pass-through")),
    subgrad.Convention("min-norm", clamp=0.25),
]
Gradients = list[Any]  # of tensors, as nested lists


def as_lists(tensors: Iterable[Tensor]) -> Gradients:
    return [tensor.tolist() for tensor in tensors]


def integers(*shape: int, step: int, low: int = -2, high: int = 3) -> Tensor:
    """Neither constant nor symmetric, and many of them equal."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * step % (high - low) + low).reshape(shape)


# A network, whose kinks are a clamp at both bounds, corners, a tie between tensors and one within a tensor.


class Bounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(0, 6)


class Tied(nn.Module):
    """Corners at 0 and 2, a tie of both at 1, and pairs of which the larger is taken."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x.relu(), (x - 2).abs()).unflatten(-1, (-1, 2)).max(-1).values


INPUT, COTANGENT = integers(8, 4, step=3), integers(8, 2, step=2, low=-3, high=6)


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 8), Bounded(), nn.Linear(8, 4), Tied()).double()
    with torch.no_grad():
        for step, parameter in enumerate(model.parameters(), start=2):
            parameter.copy_(integers(*parameter.shape, step=step))
    return model


def loss(output: Tensor, cotangent: Tensor) -> Tensor:
    return (output * cotangent).sum()


def carrying() -> nn.Sequential:
    """The same with a module of `subgrad.nn`, and converted."""
    model = network()
    model[1] = subgrad.nn.Hardtanh(0, 6, convention="mean")
    return subgrad.convert(model, "mean")


def network_gradients(make: Callable[[], nn.Sequential] = network) -> Gradients:
    model = make()
    return as_lists(torch.autograd.grad(loss(model(INPUT), COTANGENT), list(model.parameters())))


# Single operators of two tensors, which will be DTensors, and a number, which torch allows beside them as it is.
# Ties along a dimension are of two or four, whose shares are exact.

LEFT = torch.tensor([[0.0, 1, 6, -1], [6, 2, 0, 0], [3, 3, -2, 0], [6, 6, 1, 1], [2, 6, 2, 2]]).double()
RIGHT = torch.tensor([[0.0, 1, 2, -1], [6, 1, 0, 3], [2, 3, -2, 0], [6, 5, 1, 2], [2, 0, 1, 3]]).double()
NUMBER = torch.tensor(2.0).double()

OPERATORS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "clamp": lambda x, y, n: x.clamp(0, 6) * y,
    "clamp_": lambda x, y, n: (x * y).clamp_(0, 6),
    "clamp between tensors": lambda x, y, n: torch.clamp(x, y, y + 1),
    "relu": lambda x, y, n: (x - y).relu(),
    "relu_": lambda x, y, n: (x - y).relu_(),
    "relu of a transpose": lambda x, y, n: (x - y).t().relu(),
    "relu of partial sums": lambda x, y, n: (x @ (y - 2).t()).relu(),
    "leaky_relu": lambda x, y, n: F.leaky_relu(x - y, 0.25),
    "abs": lambda x, y, n: (x - y).abs(),
    "maximum": lambda x, y, n: torch.maximum(x, y),
    "maximum of a constant": lambda x, y, n: torch.maximum(x, y.detach()) * y,
    "maximum of a number": lambda x, y, n: torch.maximum(x, n) * y,
    "amax": lambda x, y, n: (x * y).amax(1),
    "max over a dimension": lambda x, y, n: x.max(1).values * y.max(0).values.sum(),
    "indices of max": lambda x, y, n: x * y.max(1, keepdim=True).indices,
    "hardtanh": lambda x, y, n: F.hardtanh(x * y, 0, 6),
}


def operator_gradients(operator: str) -> Gradients:
    operands = [each.clone().requires_grad_() for each in (LEFT, RIGHT, NUMBER)]
    out = OPERATORS[operator](*operands)
    return as_lists(torch.autograd.grad(loss_of(out), operands, materialize_grads=True))


def loss_of(out: Tensor) -> Tensor:
    return loss(out, integers(*out.shape, step=4, low=-3, high=6))
