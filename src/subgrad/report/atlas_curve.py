"""The function around a place, sampled on both sides of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from subgrad.kinks.sets import Pole
from subgrad.report.atlas_point import Entry, Point

SIDE = 40  # samples on each side
CLOSE = (0.001, 0.004, 0.012)  # further ones, for what is steep there
WIDE, NARROW = 2.0, 1.0

Points = tuple[tuple[float, float], ...]


class Curve(NamedTuple):
    """Values on both sides of a place, by how far the entry is moved, and the slopes there if it has any."""

    entry: str
    left: Points
    right: Points
    value: float
    slopes: tuple[float, float] | None


# What is no operator of the table, as a function of its first argument around the place.
def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


COMPOSED: dict[str, Callable[[float], float]] = {
    "sqrt": lambda t: math.sqrt(t),
    "sqrt(x * x)": abs,
    "sign": lambda t: float((t > 0) - (t < 0)),
    "softplus": _softplus,
    "squareplus(b=0)": lambda t: (t + abs(t)) / 2,
    "where(x > 0, sqrt(x), 0)": lambda t: math.sqrt(max(t, 0)),
    "maximum(x, 0) + log1p(exp(-abs(x)))": _softplus,
    "relu(x) + log1p(exp(-abs(x)))": _softplus,
    "relu(x) - relu(-x)": lambda t: t,
    "maximum(x, 0) + minimum(x, 0)": lambda t: t,
    "maximum(maximum(x, 0), 0) - maximum(x, 0)": lambda t: 0.0,
    "abs(x) - abs(-x)": lambda t: 0.0,
    "huber_loss": lambda t: (1 + t) ** 2 / 2 if abs(1 + t) < 1 else abs(1 + t) - 0.5,
    "hinge_loss": lambda t: max(-t, 0.0),
    "binary cross-entropy": _softplus,
    "binary cross-entropy, relu(x) - x z + log1p(exp(-abs(x)))": _softplus,
}
SLOPES = {"sqrt(x * x)": (-1.0, 1.0), "squareplus(b=0)": (0.0, 1.0), "hinge_loss": (-1.0, 0.0)}


def drawn(point: Point, entry: Entry, slopes: tuple[float, float] | None) -> Curve | None:
    """The function of an entry of a place."""
    width = NARROW if entry.index is not None or isinstance(point.place.kink.set, Pole) else WIDE
    return _curve(entry.label, point.along(entry), width, slopes)


def composed(operation: str) -> Curve | None:
    """Of a composed operation, if it is one of a single argument."""
    value = COMPOSED.get(operation)
    return None if value is None else _curve("x", value, WIDE, SLOPES.get(operation))


def _curve(
    label: str, value: Callable[[float], float], width: float, slopes: tuple[float, float] | None
) -> Curve | None:
    steps = sorted([*CLOSE, *(number / SIDE for number in range(1, SIDE + 1))])
    left = _finite(value, [-width * step for step in reversed(steps)])
    right = _finite(value, [width * step for step in steps])
    return Curve(label, left, right, _value(value, 0.0), slopes) if left or right else None


def _finite(value: Callable[[float], float], places: Sequence[float]) -> Points:
    found = ((place, _value(value, place)) for place in places)
    return tuple(pair for pair in found if math.isfinite(pair[1]))


def _value(value: Callable[[float], float], place: float) -> float:
    try:
        return value(place)
    except (ValueError, RuntimeError):  # outside of its domain
        return math.nan
