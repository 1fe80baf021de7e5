"""Expressions with known sets: the element is in the set for every seed, where torch's own is not in many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import subgrad
from clarke.known import CASES, Case

SEEDS = 5  # 100 in scripts/clarke.py
ROUNDING = 1e-9
NEAR, STEP = 1e-3, 1e-6  # how far from the point differences are taken, and with which step
COARSE = 0.02  # curvature over NEAR, and rounding over STEP

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def gradients_nearby(case: Case, count: int, seed: int = 0) -> list[Tensor]:
    """Central differences at random points close by, but for those that straddle a kink."""
    generator = torch.Generator().manual_seed(seed)
    size = len(case.x)
    found = []
    for _ in range(count):
        x = case.tensor() + NEAR * torch.randn(size, generator=generator, dtype=torch.float64)
        middle = case(x)
        steps = STEP * torch.eye(size, dtype=torch.float64)
        ahead = torch.stack([case(x + step) - middle for step in steps]) / STEP
        behind = torch.stack([middle - case(x - step) for step in steps]) / STEP
        if (ahead - behind).abs().max() < COARSE:
            found.append((ahead + behind) / 2)
    return found


@cases
def test_the_sets_are_those_of_the_forward_function(case: Case) -> None:
    found = gradients_nearby(case, 80)
    assert len(found) > 60
    assert max(map(case.distance, found)) < COARSE
    for vertex in case.vertices:
        assert min(float((each - each.new_tensor(vertex)).norm()) for each in found) < COARSE


@cases
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_element_is_in_the_set(case: Case, seed: int) -> None:
    x = case.tensor()
    element = subgrad.grad(case.function, seed=seed)(x)
    assert case.distance(element) < ROUNDING, f"{element.tolist()} is not among {case.vertices or case.sphere}"


def outside(case: Case) -> bool:
    """Whether torch's own gradient is not an element, by a wide margin; on a sphere the ball inside counts as well."""
    x = case.tensor().requires_grad_()
    (element,) = torch.autograd.grad(case(x), x)
    if not element.isfinite().all():
        return True
    if case.sphere:
        return float((element - element.new_tensor(case.sphere.centre)).norm()) > case.sphere.radius + ROUNDING
    return len(case.vertices) == 1 and case.distance(element) > ROUNDING


def test_torch_is_outside_many_of_the_sets() -> None:
    assert sum(map(outside, CASES)) >= 15


@pytest.mark.parametrize("name", ["identity_relu_diff", "softplus_hand_relu", "bce_with_logits", "maxpool_minus_amax"])
def test_a_planted_wrong_element_is_caught(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    assert outside(case)
    assert case.distance(torch.func.grad(case.function)(case.tensor())) > ROUNDING
