"""Arithmetic as torch has it, with infinities and nan, in numbers of 320 digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath

Number = Callable[[Any], Any]
mp: Any = mpmath.mp.clone()
mp.dps = 320  # of which (1 - cos x) / x^2 loses 150 at 1e-72
OVERFLOW = 709  # exp of more is infinite in float64


def inside(function: Number, low: float | None = None, high: float | None = None) -> Number:
    """A function that is nan outside of an interval, and what its limit is where it has a pole on the border."""

    def total(x: Any) -> Any:
        if mp.isnan(x) or (low is not None and x < low) or (high is not None and x > high):
            return mp.nan
        return function(x)

    return total


def over(one: Any, other: Any) -> Any:
    if other != 0:
        return mp.mpf(0) if mp.isinf(other) and not mp.isinf(one) and not mp.isnan(one) else mp.mpf(one) / other
    return mp.nan if one == 0 or mp.isnan(one) else mp.inf if one > 0 else -mp.inf


def power(x: Any, exponent: Any) -> Any:
    """As torch has it for exponents that are not whole."""
    if mp.isnan(x) or x < 0:
        return mp.nan
    if x == 0:
        return mp.mpf(0) if exponent > 0 else mp.inf if exponent < 0 else mp.mpf(1)
    return mp.power(x, exponent)


def root(x: Any) -> Any:
    return mp.nan if mp.isnan(x) or x < 0 else mp.sqrt(x)


def log(x: Any) -> Any:
    return mp.nan if mp.isnan(x) or x < 0 else -mp.inf if x == 0 else mp.log(x)


def exp(x: Any) -> Any:
    return mp.nan if mp.isnan(x) else mp.inf if x > OVERFLOW else mp.exp(x)


def smaller(x: Any, y: Any) -> Any:
    return mp.nan if mp.isnan(x) or mp.isnan(y) else min(x, y)


def larger(x: Any, y: Any) -> Any:
    return mp.nan if mp.isnan(x) or mp.isnan(y) else max(x, y)


def product(x: Any, y: Any) -> Any:
    is_nan = mp.isnan(x) or mp.isnan(y) or (x == 0 and mp.isinf(y)) or (y == 0 and mp.isinf(x))
    return mp.nan if is_nan else x * y
