"""How far around a point is looked, and how far numbers may be apart, by the precision that they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subgrad.testing.inputs import Inputs

# The radius, and the tolerances, absolute and relative: in double precision those of `torch.autograd.gradcheck`.
BY_DTYPE = {torch.float64: (1e-6, 1e-5, 1e-3), torch.float32: (2e-3, 1e-2, 1e-2)}
# Tolerances for gradients that should be the same number.
ALIKE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-5, 1e-4),
    torch.bfloat16: (1e-2, 2e-2),
    torch.float16: (1e-3, 2e-3),
}


@dataclass(frozen=True)
class Tolerance:
    """What two numbers may differ by.

    Attributes:
        eps: the radius around the point, for an entry of size 1 or less; larger ones are moved further.
        atol, rtol: absolute, and relative to the size of the number.
        rounding: of the numbers that are compared.
    """

    eps: float
    atol: float
    rtol: float
    rounding: float

    def of(self, sizes: Tensor) -> Tensor:
        return self.atol + self.rtol * sizes.abs()


def for_quotients(inputs: Inputs, eps: float | None, atol: float | None, rtol: float | None) -> Tolerance:
    """For what is held against difference quotients.

    Raises:
        ValueError: for numbers too coarse for that, and for a radius that is none.
    """
    dtype = inputs.dtype
    if dtype not in BY_DTYPE:
        raise ValueError(
            f"The inputs are {dtype}, too coarse for difference quotients: give float64 (or float32), as x.double()."
        )
    known = BY_DTYPE[dtype]
    given = [default if one is None else one for one, default in zip((eps, atol, rtol), known, strict=True)]
    _check(eps=given[0], atol=given[1], rtol=given[2])
    if not given[0]:
        raise ValueError(f"eps={eps}: give a radius larger than 0.")
    return Tolerance(given[0], given[1], given[2], torch.finfo(dtype).eps)


def for_equality(inputs: Inputs, atol: float | None, rtol: float | None) -> Tolerance:
    """For two gradients that should be the same."""
    known = ALIKE.get(inputs.dtype, ALIKE[torch.bfloat16])
    given = [default if one is None else one for one, default in zip((atol, rtol), known, strict=True)]
    _check(atol=given[0], rtol=given[1])
    return Tolerance(0.0, given[0], given[1], torch.finfo(inputs.dtype).eps)


def _check(**numbers: Any) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
            raise ValueError(f"{name}={number!r}: give a number from 0 on.")
