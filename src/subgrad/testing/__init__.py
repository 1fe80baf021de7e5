"""Sure: checks of gradients at kinks, for test suites.

>>> import torch, subgrad
>>> subgrad.testing.gradcheck(torch.abs, torch.zeros(2, dtype=torch.float64))
True
"""

from __future__ import annotations

from subgrad.testing.assertions import (
    assert_convention,
    assert_finite_gradient,
    assert_in_subdifferential,
    assert_no_hits,
    assert_same_gradient,
)
from subgrad.testing.conformance_pack import Conformance, conformance
from subgrad.testing.gradcheck import GradcheckError, gradcheck, gradgradcheck
from subgrad.testing.search import FoundKink, find_kinks
from subgrad.testing.strategies import tensors

__all__ = [
    "Conformance",
    "FoundKink",
    "GradcheckError",
    "assert_convention",
    "assert_finite_gradient",
    "assert_in_subdifferential",
    "assert_no_hits",
    "assert_same_gradient",
    "conformance",
    "find_kinks",
    "gradcheck",
    "gradgradcheck",
    "tensors",
]


def __dir__() -> list[str]:
    return sorted(__all__)
