"""Every module of `subgrad.nn` with its counterpart, made alike, and inputs that lie on its kinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import subgrad

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Clamp": (-1.0, 2.0),
    "ELU": (2.0,),
    "Hardtanh": (0.0, 6.0),
    "LeakyReLU": (-0.5,),
    "PReLU": (3, 2.0),
    "Threshold": (1.0, 1.0),
    "SmoothL1Loss": (None, None, "sum", 0.0),
    "MaxPool1d": (3, 2, 1),
    "MaxPool2d": (2,),
    "MaxPool3d": (2,),
    "AdaptiveMaxPool1d": (2,),
    "AdaptiveMaxPool2d": (2,),
    "AdaptiveMaxPool3d": (1,),
    "FractionalMaxPool2d": (2, 2, None, False, torch.full((2, 3, 2), 0.3)),
    "FractionalMaxPool3d": (2, 2, None, False, torch.full((2, 3, 3), 0.3)),
}
# Whole and half numbers from -4 to 7 meet every bound above, and tie in windows.
VALUES = torch.tensor([-4.0, -3.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0, 2.0, 3.0, 6.0, 7.0])


@dataclass(frozen=True)
class Case:
    """One module: its name, its inputs, of which the first is differentiated, and how many of them are."""

    name: str
    inputs: tuple[Tensor, ...]

    def ours(self, convention: Any = "min-norm") -> torch.nn.Module:
        return getattr(subgrad.nn, self.name)(*ARGUMENTS.get(self.name, ()), convention=convention).eval()

    def theirs(self) -> torch.nn.Module:
        return getattr(torch.nn, self.name)(*ARGUMENTS.get(self.name, ())).eval()

    def gradients(self, module: Any) -> list[Tensor]:
        """With respect to inputs and parameters, weighed by what differs from entry to entry."""
        given = [each.clone().requires_grad_(each.is_floating_point()) for each in self.inputs]
        result = module(*given)
        leaves = [each for each in (*given, *_parameters(module)) if each.requires_grad]
        cotangent = torch.linspace(-1.0, 2.0, result.numel()).reshape(result.shape)
        return list(torch.autograd.grad(result, leaves, cotangent, allow_unused=True, materialize_grads=True))


def _parameters(module: Any) -> list[Tensor]:
    return list(module.parameters()) if isinstance(module, torch.nn.Module) else []


def _inputs(name: str) -> tuple[Tensor, ...]:
    dimensions = {"1": 1, "2": 2, "3": 3}.get(name[-2:-1], 0) if "Pool" in name else 0
    if dimensions:
        shape = (2, 3, *[4] * dimensions)
        repeated = VALUES.repeat(1 + 6 * 4**dimensions // len(VALUES))
        return (repeated[: 6 * 4**dimensions].reshape(shape),)
    scores = VALUES[:12].reshape(3, 4)
    targets = {
        "MultiMarginLoss": (torch.tensor([1, 0, 3]),),
        "MultiLabelMarginLoss": (torch.tensor([[1, 2, -1, 0], [0, -1, 0, 0], [3, -1, 1, 0]]),),
        "HingeEmbeddingLoss": (torch.tensor([[1.0, -1.0, -1.0, -1.0]] * 3),),
        "MarginRankingLoss": (scores.flip(0), torch.tensor([[1.0, -1.0, 1.0, -1.0]] * 3)),
        "L1Loss": (scores.roll(1, 1),),
        "SmoothL1Loss": (scores.roll(1, 1),),
    }
    return (scores, *targets[name]) if name in targets else (VALUES.repeat(6).reshape(2, 3, 13),)


CASES = [Case(name, _inputs(name)) for name in subgrad.nn.__all__]
WITH_COUNTERPART = [case for case in CASES if case.name != "Clamp"]
