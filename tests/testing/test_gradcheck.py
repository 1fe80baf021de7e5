"""`subgrad.testing` on derivatives written by hand: bugs are caught and said, right elements at kinks pass."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import subgrad
from subgrad.testing import GradcheckError, gradcheck
from testing.classic import BUGS, RIGHT, Case

ZERO = torch.tensor([0.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("case", BUGS, ids=[case.name for case in BUGS])
def test_a_classic_bug_is_caught_and_named(case: Case) -> None:
    with pytest.raises(GradcheckError, match=case.says):
        gradcheck(case.function, case.given, **case.options)


@pytest.mark.parametrize("case", RIGHT, ids=[case.name for case in RIGHT])
def test_right_elements_at_kinks_pass(case: Case) -> None:
    assert gradcheck(case.function, case.given, **case.options)


@pytest.mark.parametrize("convention", ["min-norm", "torch-2.13", "left", "right", "mean"])
def test_every_convention_gives_elements(convention: str) -> None:
    with subgrad.use(convention):
        assert gradcheck(lambda x: torch.clamp(x, 0, 1), (ZERO.clone().requires_grad_(),))


def test_two_spellings_of_one_function_may_have_two_gradients() -> None:
    with subgrad.use("torch-2.13"), pytest.raises(AssertionError, match="clamp"):
        subgrad.testing.assert_same_gradient(F.relu, lambda x: x.clamp(min=0), ZERO)
    with subgrad.use("min-norm"):
        subgrad.testing.assert_same_gradient(F.relu, lambda x: x.clamp(min=0), ZERO)


def test_what_is_asserted_of_one_function() -> None:
    testing = subgrad.testing
    with subgrad.use("min-norm"):
        testing.assert_convention(F.relu, ZERO, "min-norm")
        testing.assert_in_subdifferential(F.relu, ZERO)
        testing.assert_finite_gradient(F.relu, ZERO)
    with pytest.raises(AssertionError, match="relu"):
        testing.assert_no_hits(F.relu, ZERO)
    with pytest.raises(AssertionError, match="sqrt"):
        testing.assert_finite_gradient(torch.sqrt, ZERO)


def test_a_kink_is_found_to_the_floating_point_number() -> None:
    found = subgrad.testing.find_kinks(lambda x: (x - 0.3).abs(), (-1.0, 1.0))
    assert found
    assert any(abs(float(torch.as_tensor(each.point).flatten()[0]) - 0.3) < 1e-12 for each in found)
