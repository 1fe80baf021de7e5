"""What strong zeros look at, and where they leave torch alone: gates that are broadcast, calls without gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.kernels.native import build

CHANNELS, SIDE = 24, 32  # large enough to be judged by what is smaller
OPERATORS = {"mul": torch.mul, "div": torch.div}


def gated(
    function: Callable[[Tensor, Tensor], Tensor], gate: Tensor, image: Tensor, cotangent: Tensor, strong: bool
) -> tuple[Tensor, ...]:
    """The gradients of a gate and of what it is multiplied with, or divided by."""
    leaves = [each.clone().requires_grad_() for each in (image, gate)]
    with subgrad.use("torch", strong_zero=strong):
        return torch.autograd.grad(function(*leaves), leaves, cotangent)


def gate_image_and_cotangent() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    gate = torch.rand(2, CHANNELS, 1, 1, generator=generator, dtype=torch.float64) + 0.5
    image, cotangent = torch.randn(2, 2, CHANNELS, SIDE, SIDE, generator=generator, dtype=torch.float64)
    return gate, image, cotangent


@pytest.mark.parametrize("name", OPERATORS)
def test_gates_that_are_finite_change_no_bit(name: str) -> None:
    gate, image, cotangent = gate_image_and_cotangent()
    found = [gated(OPERATORS[name], gate, image, cotangent, strong) for strong in (False, True)]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("place", ["gate", "image"])
def test_what_is_not_finite_behind_a_cotangent_of_0_contributes_nothing(name: str, place: str) -> None:
    gate, image, cotangent = gate_image_and_cotangent()
    without = gate.clone(), image.clone()
    if place == "gate":  # of a channel that is left out
        gate[1, 3] = torch.inf if name == "mul" else 0.0
        cotangent[1, 3] = 0.0
    else:
        image[0, 5, 2, 7] = torch.inf
        cotangent[0, 5, 2, 7] = 0.0
        without[1][0, 5, 2, 7] = 0.0
    plain, strong = (gated(OPERATORS[name], gate, image, cotangent, strong) for strong in (False, True))
    assert any(each.isnan().any() for each in plain)
    wanted = gated(OPERATORS[name], *without, cotangent, strong=False)
    for one, other, right in zip(plain, strong, wanted, strict=True):
        assert torch.equal(one[~one.isnan()], other[~one.isnan()])
        torch.testing.assert_close(other, right)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_live_gate_that_is_nan_stays_nan(name: str) -> None:
    gate, image, cotangent = gate_image_and_cotangent()
    gate[1, 3] = torch.nan
    plain, strong = (gated(OPERATORS[name], gate, image, cotangent, strong) for strong in (False, True))
    assert strong[0][1, 3].isnan().all()
    assert all(torch.equal(one.isnan(), other.isnan()) for one, other in zip(plain, strong, strict=True))


def frames_of_subgrad(function: Callable[[], Any]) -> int:
    """How many functions of subgrad a call runs."""
    count = 0

    def seen(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_globals.get("__name__", "").startswith("subgrad.")

    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.skipif(not build.is_used(), reason="without the C++ part kernels are in Python")
def test_without_gradients_and_by_numbers_no_python_runs() -> None:
    x = torch.rand(8, requires_grad=True)
    y = x.detach()
    with subgrad.use("min-norm", strong_zero=True):
        assert frames_of_subgrad(lambda: [y * y, y / y, y.exp(), torch.softmax(y, 0), y.clone().mul_(y), y @ y]) == 0
        assert frames_of_subgrad(lambda: [x * 2.0, x / 3, x * -0.5]) == 0
        with torch.no_grad():
            assert frames_of_subgrad(lambda: [x * x, x.sqrt()]) == 0
        assert frames_of_subgrad(lambda: [x / 0.0, x * torch.inf, x * x]) > 0
        for divided in (x / 0.0, x * torch.inf):
            cotangent = torch.tensor([0.0, 1.0] * 4)
            found = torch.autograd.grad(divided, x, cotangent)[0]
            assert found.tolist() == [0.0, torch.inf] * 4
