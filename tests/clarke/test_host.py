"""What a gradient of a whole program costs the host: frames of ours for each operator, once the program is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from entered import frames
from fresh import run_fresh
from torch import Tensor

import subgrad

LAYERS = 20
MOST = {"relu": (24, 42), "hardtanh": (24, 42), "batch_norm": (36, 40), "conv2d": (2, 8)}  # plain, with a kink


def layer(name: str, x: Tensor, weight: Tensor) -> Tensor:
    if name == "relu":
        return F.relu(x)
    if name == "hardtanh":
        return F.hardtanh(x, -9, 9)
    if name == "batch_norm":
        return F.batch_norm(x, None, None, weight[0, :, 0, 0], None, True)
    return F.conv2d(x, weight, padding=1)


def taken(name: str, layers: int, has_kink: bool) -> int:
    weight = torch.randn(2, 2, 3, 3)

    def program(x: Tensor) -> Tensor:
        start = x.abs() if has_kink else x * 1
        y = start + 1
        for _ in range(layers):
            y = layer(name, y, weight)
        return y.square().mean()

    x = torch.rand(2, 2, 4, 4)
    x[0, 0, 0, 0] = 0
    gradient: Callable[[Tensor], Tensor] = subgrad.grad(program)
    for _ in range(3):
        gradient(x)
    assert subgrad.element(program)(x).kinks == has_kink
    with frames() as found:
        gradient(x)
    return len(found)


def for_each(name: str, has_kink: bool) -> float:
    return (taken(name, LAYERS, has_kink) - taken(name, 0, has_kink)) / LAYERS


@pytest.mark.parametrize("has_kink", [False, True], ids=["plain", "with a kink"])
@pytest.mark.parametrize("name", MOST)
def test_an_operator_takes_few_frames_in_all_passes_together(name: str, has_kink: bool) -> None:
    """In a process where no convention has put kernels beneath those of passes."""
    done = run_fresh(f"from clarke import test_host; print(test_host.for_each({name!r}, {has_kink}))")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= MOST[name][has_kink]
