"""Models of torchvision and transformers have the same gradients with strong zeros, to the bit, eager and compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import subgrad

if TYPE_CHECKING:
    from programs.training import Step

pytestmark = pytest.mark.long


def trained(name: str, strong_zero: bool, compiled: bool) -> list[Step]:
    from programs.training import PROGRAMS, train  # with torchvision and transformers: not while tests are collected

    torch.compiler.reset()
    with subgrad.use("mean", strong_zero=strong_zero):
        if not compiled:
            return train(PROGRAMS[name])
        return train(PROGRAMS[name], lambda model: torch.compile(model, backend="aot_eager"))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["MobileNetV2", "OLMo"])
def test_gradients_of_all_steps_are_the_same_to_the_bit(name: str, compiled: bool) -> None:
    plain, strong = (trained(name, strong_zero, compiled) for strong_zero in (False, True))
    for one, other in zip(plain, strong, strict=True):
        assert one.gradients.keys() == other.gradients.keys()
        for parameter, gradient in one.gradients.items():
            assert gradient.isfinite().all()
            assert torch.equal(gradient.view(torch.uint8), other.gradients[parameter].view(torch.uint8)), parameter
