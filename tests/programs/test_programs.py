"""Models of torchvision and transformers, unchanged, get the same gradients in every mode of training.

Eager, compiled and DDP train in float64, each along its own path of 20 steps, and agree to rounding. Autocast
cannot stay on a common path: it is asked at the weights of each eager step, and agrees to bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from distributed.once import run_once
from torch import Tensor

STEPS = 20
ROUNDING = 1e-6  # OLMo normalises in float32
ROUNDING_OF_16_BITS = 0.05

Run = list[dict[str, Any]]  # of each step the gradients of all parameters, and of what is held on kinks
Found = dict[tuple[str, str], dict[str, Run]]

programs = pytest.mark.parametrize("program", ["MobileNetV2", "OLMo"])
conventions = pytest.mark.parametrize("convention", ["min-norm", "mean"])
modes = pytest.mark.parametrize("mode", ["compiled", "DDP", "autocast"])


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return torch.load(run_once("programs.worker", tmp_path_factory))


def largest_error(found: Iterable[Tensor], wanted: Iterable[Tensor]) -> float:
    """Over all steps, relative to the norm of the gradient."""
    return max(float((one - other).norm() / other.norm()) for one, other in zip(found, wanted, strict=True))


def held(run: Run) -> list[Tensor]:
    return [torch.cat([each.flatten() for each in step["held"].values()]) for step in run]


@conventions
@programs
@modes
def test_every_mode_agrees_with_eager(mode: str, program: str, convention: str, found: Found) -> None:
    runs = found[program, convention]
    assert len(runs[mode]) == STEPS
    error = largest_error((step["all"] for step in runs[mode]), (step["all"] for step in runs["eager"]))
    assert error < (ROUNDING_OF_16_BITS if mode == "autocast" else ROUNDING)


@programs
@modes
def test_what_is_held_on_kinks_gets_the_gradient_of_eager(mode: str, program: str, found: Found) -> None:
    """Alone, since it is small beside the rest. Were the convention lost, it would be 0 and the error 1."""
    runs = found[program, "mean"]
    error = largest_error(held(runs[mode]), held(runs["eager"]))
    assert error < (4 * ROUNDING_OF_16_BITS if mode == "autocast" else ROUNDING)


@programs
@pytest.mark.parametrize("mode", ["eager", "compiled", "DDP", "autocast"])
def test_what_is_held_on_kinks_gets_none_under_min_norm(mode: str, program: str, found: Found) -> None:
    assert not any(each.any() for each in held(found[program, "min-norm"][mode]))


@programs
def test_every_kink_is_met_at_every_step(program: str, found: Found) -> None:
    """Under `mean` gradient reaches all that `min-norm` blocks."""
    steps = found[program, "mean"]["eager"]
    assert [
        (index, name) for index, step in enumerate(steps) for name, each in step["held"].items() if not each.any()
    ] == []
