"""What each convention takes at the kinks that are met most, as a table of the documentation; measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from subgrad.apply.use import use
from subgrad.conventions import CHOICES
from subgrad.report.elements import number

ZERO = torch.tensor(0.0)
# What it is called, the set, the function, and the arguments, all of which are differentiated.
Place = tuple[str, str, Callable[..., Tensor], Sequence[float]]
PLACES: tuple[Place, ...] = (
    ("`relu` at 0", "[0, 1]", torch.relu, [0.0]),
    ("`clamp(x, 0, 6)` at 0", "[0, 1]", lambda x: x.clamp(0, 6), [0.0]),
    ("`clamp(x, 0, 6)` at 6", "[0, 1]", lambda x: x.clamp(0, 6), [6.0]),
    ("`relu6` at 6", "[0, 1]", F.relu6, [6.0]),
    ("`maximum(x, constant)`, a tie", "[0, 1]", lambda x: torch.maximum(x, ZERO), [0.0]),
    ("`maximum(x, y)`, a tie", "simplex", torch.maximum, [0.0, 0.0]),
    ("`clamp(x, min=y)`, a tie", "simplex", lambda x, y: x.clamp(min=y), [0.0, 0.0]),
    ("`abs` at 0", "[-1, 1]", torch.abs, [0.0]),
    ("`leaky_relu` at 0", "[0.01, 1]", F.leaky_relu, [0.0]),
    ("`elu(alpha=2)` at 0", "[1, 2]", lambda x: F.elu(x, 2.0), [0.0]),
    ("`selu` at 0", "[1.0507, 1.7581]", F.selu, [0.0]),
    ("`hypot` at 0, 0", "ball", torch.hypot, [0.0, 0.0]),
    ("`amax`, two tie", "simplex", lambda x, y: torch.stack([x, y]).amax(0), [0.0, 0.0]),
    ("`max(dim)`, two tie", "simplex", lambda x, y: torch.stack([x, y]).max(0).values, [0.0, 0.0]),
)


def conventions_table() -> str:
    """The table, in markdown. The column of torch is what the installed version gives."""
    lines = [["at", "set", *(f"`{name}`" for name in CHOICES)], ["---"] * (2 + len(CHOICES))]
    lines += [[name, among, *(_element(f, at, rule) for rule in CHOICES)] for name, among, f, at in PLACES]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _element(f: Callable[..., Tensor], at: Sequence[float], convention: str) -> str:
    leaves = [torch.tensor(each, requires_grad=True) for each in at]
    with use(convention):
        slopes = torch.autograd.grad(f(*leaves), leaves)
    return ", ".join(number(each.item()) for each in slopes)
