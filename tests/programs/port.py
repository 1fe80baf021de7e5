"""A network trained in torch as `scripts/training_in_jax.py` trains it in JAX: the same weights, the same data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "training_jax.json"
STEPS, RATE = 10, 2.0**-4


class Network(nn.Module):
    """Of integers, so that kinks are hit."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(4, 1, bias=False)
        self.double()
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
        self.data = torch.randint(-2, 3, (16, 5), generator=generator).double()
        self.targets = torch.randint(-1, 2, (16, 1), generator=generator).double()

    def loss(self) -> Tensor:
        hidden = torch.clamp(self.first(self.data), -2, 2)
        hidden = F.leaky_relu(self.second(hidden), 0.25)
        out = torch.maximum(self.third(hidden), self.targets)
        peaks = hidden.amax(1).mean() + torch.linalg.vector_norm(self.third.weight, ord=float("inf")) / 4
        return (out - self.targets).abs().mean() + peaks + torch.linalg.vector_norm(self.first.bias, ord=1) / 8

    def given(self) -> dict[str, Any]:
        """What the training in JAX starts from."""
        weights = {name: each.tolist() for name, each in self.named_parameters()}
        return {
            **{"weights": weights, "data": self.data.tolist(), "targets": self.targets.tolist()},
            **{"steps": STEPS, "rate": RATE},
        }

    def step(self, compiled: bool) -> dict[str, Tensor]:
        """The gradients, which are then gone along."""
        names, parameters = zip(*self.named_parameters(), strict=True)
        loss = torch.compile(self.loss, backend="aot_eager") if compiled else self.loss
        gradients = torch.autograd.grad(loss(), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= RATE * gradient
        return dict(zip(names, gradients, strict=True))


@cache
def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text())


def distances(steps: list[dict[str, Any]], compiled: bool = False) -> Iterator[float]:
    """How far the gradients of torch's training are from those of the other, step by step: the largest entry."""
    network = Network()
    for step in steps:
        found = network.step(compiled)
        wanted = {name: torch.tensor(each, dtype=torch.float64) for name, each in step["gradients"].items()}
        yield max(float((found[name] - wanted[name]).abs().max()) for name in wanted)
