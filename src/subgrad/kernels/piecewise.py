"""Operators that are straight between their kinks: what they weigh the cotangent with, region by region.

From one kink to the next the slope is constant, so that a backward needs no input, only the region of each entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from subgrad.apply.plan import Meeting, Plan
from subgrad.kinks.sets import Slopes, Ties
from subgrad.torch_internals.versions import COLUMN

Arguments = Mapping[str, Any]

ZERO, ONE, PRODUCT = 0, 1, 2  # a weight of exactly 0 or 1, whatever comes in, or one to multiply with
SIXTH = 0.16666667163372040  # torch has it in 32 bits, for doubles too


def as_bits(number: float) -> int:
    """The bits of a double."""
    return struct.unpack("q", struct.pack("d", number))[0]


@dataclass(frozen=True)
class Weight:
    """What the cotangent is multiplied with; torch itself multiplies with 0 here and there, which keeps nan."""

    number: float
    kind: int

    @classmethod
    def exact(cls, number: float) -> Weight:
        return cls(number, {0.0: ZERO, 1.0: ONE}.get(number, PRODUCT))

    @classmethod
    def product(cls, number: float) -> Weight:
        return cls(number, ONE if number == 1 else PRODUCT)


@dataclass(frozen=True)
class Straight:
    """An operator whose value is straight between its kinks.

    Attributes:
        value: the name of what it computes, for the kernels.
        numbers: from the arguments, the lower kink, the upper one, and a further number.
        at_nan: the weight where ``self`` (or ``other``) is nan; the name of an argument that is it.
        multiplies: whether torch multiplies with its slopes, 0 included.
        slopes: those that torch has instead of the table's.
        by_lanes: what torch makes of nan on the CPU depends on where in memory it lies: by lanes, or one at a time.
    """

    value: Callable[[Arguments], str]
    numbers: Callable[[Arguments], tuple[float, float, float]]
    at_nan: float | str
    multiplies: bool = False
    slopes: tuple[float, ...] | None = None
    by_lanes: bool = False


def _always(value: str) -> Callable[[Arguments], str]:
    return lambda _: value


def _selection(value: str, at_nan: float) -> Straight:
    return Straight(_always(value), lambda _: (0.0, inf, 0.0), at_nan)


def _bounds(arguments: Arguments) -> tuple[float, float, float]:
    low, high = arguments["min"], arguments["max"]
    return (high, inf, 0.0) if low is None else (low, inf if high is None else high, 0.0)


def _bounded(arguments: Arguments) -> str:
    return "clamp_max" if arguments["min"] is None else "clamp_min" if arguments["max"] is None else "clamp"


CLAMPS = ("clamp", "clamp_min", "clamp_max")  # values that are a bound, or an entry

# Operators of one tensor.
STRAIGHT = {
    "relu": Straight(_always("clamp_min"), lambda _: (0.0, inf, 0.0), at_nan=1.0),
    "relu6": Straight(_always("clamp"), lambda _: (0.0, 6.0, 0.0), at_nan=1.0, by_lanes=True),
    "hardtanh": Straight(_always("clamp"), lambda a: (a["min_val"], a["max_val"], 0.0), at_nan=1.0, by_lanes=True),
    "clamp": Straight(_bounded, _bounds, at_nan=0.0),
    "clamp_min": Straight(_always("clamp_min"), lambda a: (a["min"], inf, 0.0), at_nan=0.0),
    "clamp_max": Straight(_always("clamp_max"), lambda a: (a["max"], inf, 0.0), at_nan=0.0),
    "threshold": Straight(_always("threshold"), lambda a: (a["threshold"], inf, a["value"]), at_nan=1.0),
    "softshrink": Straight(_always("softshrink"), lambda a: (-a["lambd"], a["lambd"], 0.0), at_nan=1.0, by_lanes=True),
    "hardsigmoid": Straight(_always("hardsigmoid"), lambda _: (-3.0, 3.0, SIXTH), 0.0, slopes=(0.0, SIXTH, 0.0)),
    "leaky_relu": Straight(
        _always("leaky_relu"), lambda a: (0.0, inf, a["negative_slope"]), at_nan="negative_slope", multiplies=True
    ),
    "abs": Straight(_always("abs"), lambda _: (0.0, inf, 0.0), at_nan=0.0, multiplies=True),
}

# Selections between tensors, whose kink is where the two are equal: by the operator and the name of the second one.
_BOUND_AT_NAN = {"2.13": 0.0, "2.14": 1.0}[COLUMN]
BETWEEN_TENSORS = {
    ("maximum", "other"): _selection("maximum", at_nan=1.0),
    ("minimum", "other"): _selection("minimum", at_nan=1.0),
    ("clamp_min.Tensor", "min"): _selection("maximum", _BOUND_AT_NAN),
    ("clamp_max.Tensor", "max"): _selection("minimum", _BOUND_AT_NAN),
    ("clamp.Tensor", "min"): _selection("maximum", _BOUND_AT_NAN),
    ("clamp.Tensor", "max"): _selection("minimum", _BOUND_AT_NAN),
}


def rows_between(op: str) -> dict[str, Straight]:
    """The rows of a selection, by the name of the second tensor, if it may be one or another; none for others."""
    return {second: row for (of, second), row in BETWEEN_TENSORS.items() if of == op}


@dataclass(frozen=True)
class Corner:
    """A kink of one call: the weights left of it, on it, and right of it; and whether the one on it is our choice."""

    left: float
    on: float
    right: float
    is_chosen: bool


@dataclass(frozen=True)
class Coding:
    """Which code each region has, and what the codes weigh.

    Attributes:
        corners: how many kinks there are, one or two.
        regions: the codes of: below, on the lower kink, between, on the upper kink, above, nan.
        weights: of each differentiated operand, by code.
        has_flags: whether blocks say if they hold a kink or nan. With two gradients that costs more than it saves where
            all do, as two random tensors of 16 bits are equal here and there in every block; with one it does not.
    """

    corners: int
    regions: tuple[int, ...]
    weights: tuple[tuple[Weight, ...], ...]
    has_flags: bool = True

    @cached_property
    def bits(self) -> int:
        return 1 if len(self.weights[0]) <= 2 else 2

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """For the kernels: the weights of the first operand and of the last, as the bits of doubles."""
        both = (self.weights[0], self.weights[-1])
        return tuple(as_bits(each[code].number) if code < len(each) else 0 for each in both for code in range(4))

    @cached_property
    def constants(self) -> tuple[Any, ...]:
        """What the kernel `weigh` is compiled for: the kinds of the same weights, how many operands, bits."""
        both = (self.weights[0], self.weights[-1])
        kinds = (each[code].kind if code < len(each) else ZERO for each in both for code in range(4))
        return *kinds, len(self.weights) == 2, self.bits

    @classmethod
    def of(cls, row: Straight, operands: Sequence[Sequence[Corner]], arguments: Arguments) -> Coding:
        """The coding of a call from the corners of each differentiated operand, lowest first."""
        regions = list(zip(*(_region_weights(row, corners, arguments) for corners in operands), strict=True))
        # Those first that most entries have: the second bit is for the others.
        codes = list(dict.fromkeys([*regions[::2], *regions[1::2]]))
        return cls(
            len(operands[0]),
            tuple(codes.index(region) for region in regions),
            tuple(zip(*codes, strict=True)),
            has_flags=len(operands) == 1,
        )


def _region_weights(row: Straight, corners: Sequence[Corner], arguments: Arguments) -> list[Weight]:
    torchs_own = Weight.product if row.multiplies else Weight.exact
    pieces = row.slopes or (*(corner.left for corner in corners), corners[-1].right)
    weights = [torchs_own(piece) for piece in pieces]
    on = [Weight.exact(corner.on) if corner.is_chosen else torchs_own(corner.on) for corner in corners]
    nan = torchs_own(arguments[row.at_nan] if isinstance(row.at_nan, str) else row.at_nan)
    if len(corners) == 1:
        return [weights[0], on[0], weights[1], weights[1], weights[1], nan]
    return [weights[0], on[0], weights[1], on[1], weights[2], nan]


def only_given(names: Iterable[str], arguments: Arguments) -> str | None:
    """Of some arguments the one that is given; None for several."""
    given = [name for name in names if arguments[name] is not None]
    return given[0] if len(given) == 1 else None


def coding_of(row: Straight, plan: Plan, arguments: Arguments, operands: tuple[str, ...]) -> Coding | None:
    """How the regions of a call are coded; None where torch decides at a kink and the table cannot say what."""
    meetings = sorted(plan.meetings, key=lambda meeting: _place(meeting, arguments))
    if not 1 <= len(meetings) <= 2 or any(meeting.element is None for meeting in meetings):
        return None
    return Coding.of(row, [[_corner(meeting, name) for meeting in meetings] for name in operands], arguments)


def _place(meeting: Meeting, arguments: Arguments) -> float:
    kink = meeting.spot.kink
    return kink.place_value(arguments) if isinstance(kink.set, Slopes) else 0.0


def _corner(meeting: Meeting, name: str) -> Corner:
    """The weights of one operand around a kink, from the least ``self`` to the largest."""
    kinks, element, is_chosen = meeting.spot.set, meeting.element or {}, meeting.choice is not None
    if isinstance(kinks, Ties):
        left, right = (kinks.share(selected)[name] for selected in kinks.moved["self"])
    else:
        left, right = (rule({})[name] for rule in (kinks.left, kinks.right))  # type: ignore[union-attr,index]
    return Corner(float(left), float(element[name]), float(right), is_chosen)
