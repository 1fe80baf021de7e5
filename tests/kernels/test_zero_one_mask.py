"""Comparisons say who passes: against weights of every region, nan among them, for all patterns that occur."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from subgrad.apply.plan import Plan
from subgrad.kernels.piecewise import Coding, Weight
from subgrad.kernels.zero_one_mask import ZeroOneMask

X = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, float("nan"), float("inf"), float("-inf")], requires_grad=True)
REGIONS = (0, 1, 2, 3, 4, 5, 4, 0)  # of these entries, with kinks at -1 and 1


def coding(weights: list[float], corners: int) -> Coding:
    return Coding(corners, tuple(range(6)), (tuple(Weight.exact(weight) for weight in weights),))


@pytest.mark.parametrize("corners", [1, 2])
@pytest.mark.parametrize("passes", product([0.0, 1.0], repeat=4), ids=str)
def test_every_pattern(passes: tuple[float, ...], corners: int) -> None:
    side, on_low, on_high, nan = passes
    above = side if corners == 2 else 1 - side
    weights = [side, on_low, 1 - side, on_high if corners == 2 else above, above, nan]
    mask = ZeroOneMask.of(coding(weights, corners), Plan(frozenset({"self"}), ()))
    assert mask is not None
    cotangent = torch.tensor([1.0, -2.0, 3.0, float("inf"), float("nan"), 4.0, 5.0, 6.0])
    said = mask.compare(X, -1.0, 1.0)
    found = torch.where(said, 0, cotangent) if mask.says_who_is_blocked else torch.where(said, cotangent, 0)
    assert torch.equal(mask.compare(X, -1.0, 1.0, out=torch.empty_like(X)), said.float())
    wanted = [weights[region] for region in REGIONS]
    torch.testing.assert_close(found, torch.where(torch.tensor(wanted) == 1, cotangent, 0), equal_nan=True)


def test_other_weights_have_no_mask() -> None:
    plan = Plan(frozenset({"self"}), ())
    assert ZeroOneMask.of(coding([0, 0.5, 1, 1, 1, 1], 1), plan) is None
    assert ZeroOneMask.of(coding([1, 0, 1, 1, 1, 1], 1), plan) is None  # flat on both sides: a comparison cannot say it
