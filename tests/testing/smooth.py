"""Random smooth functions of one or two tensors: torch's gradient of them is right everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "exp": lambda x: torch.exp(x.tanh()),
    "log": lambda x: torch.log1p(x * x),
    "root": lambda x: torch.sqrt(1 + x * x),
    "cube": lambda x: x**3 / (1 + x * x),
    "atan": torch.atan,
    "erf": torch.erf,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-1),
    "cumsum": lambda x: torch.cumsum(x, -1),
    "flip": lambda x: x.flip(-1) * torch.arange(1, x.shape[-1] + 1).to(x),
    "written": lambda x: x.clone().mul_(x.cos()).add_(1),
    "logsumexp": lambda x: x + torch.logsumexp(x, -1, keepdim=True),
    "norm": lambda x: x / torch.linalg.vector_norm(torch.cat((x, torch.ones_like(x)), -1), dim=-1, keepdim=True),
}
TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "times": torch.mul,
    "quotient": lambda x, y: x / (1 + y * y),
    "matmul": lambda x, y: torch.tanh(x) @ y.transpose(-1, -2).sin() @ x,
    "atan2": lambda x, y: torch.atan2(x, 1 + y * y),
    "hypot": lambda x, y: torch.hypot(x, 1 + y * y),
    "lerp": lambda x, y: torch.lerp(x, y, torch.sigmoid(x)),
    "logaddexp": torch.logaddexp,
    "distance": lambda x, y: F.mse_loss(x, y, reduction="none") + x,
}
END: dict[str, Callable[[Tensor], Tensor]] = {
    "all": lambda x: x,
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(-1),
    "several": lambda x: torch.stack((x.sum(), (x * x).mean(), x.flatten()[0])),
}
SHAPES = ((1, 1), (2, 3), (3, 2), (1, 4), (2, 2))


@dataclass(frozen=True)
class Smooth:
    """A function, and where it is looked at."""

    steps: tuple[str, ...]
    inputs: tuple[Tensor, ...]

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        *steps, end = self.steps
        for step in steps:
            x, y = (ONE[step](x), y) if step in ONE else (TWO[step](x, y), x)
        return END[end](x)

    def __str__(self) -> str:
        return f"{' '.join(self.steps)} at {[each.tolist() for each in self.inputs]}"


def smooth(generator: Random) -> Smooth:
    """Points of all sizes, small whole numbers more often than not."""
    steps = tuple(generator.choice([*ONE, *TWO]) for _ in range(generator.randint(1, 5)))
    shape = generator.choice(SHAPES)
    scale = generator.choice((1.0, 1.0, 1e-3, 3.0))

    def entry() -> float:
        return float(generator.randint(-2, 2)) if generator.random() < 0.6 else scale * generator.gauss(0, 1)

    inputs = (
        torch.tensor([[entry() for _ in range(shape[1])] for _ in range(shape[0])], dtype=torch.float64)
        for _ in range(2)
    )
    return Smooth((*steps, generator.choice(list(END))), tuple(each.requires_grad_() for each in inputs))
