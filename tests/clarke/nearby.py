"""What a program's own values say of its derivatives: quotients at small steps, extrapolated to step 0.

Nothing of the library is used, nor any derivative of torch: a program is a function from a vector of float64 numbers
to a number, and it is only evaluated. Where it is given in other numbers (`mpmath`), the same quotients are sharper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import Any

Value = Callable[[Sequence[Any]], Any]  # a program: the numbers that it is given, and the number that it returns
LEVELS = 7  # steps of one extrapolation, each half of the last
STARTS = (9, 14, 4)  # the first step of an extrapolation is 2 ** -start: kinks elsewhere are left behind
EXACT_STARTS = (30, 45)  # for numbers of many digits
EXACTLY_ASIDE = 2.0**-24  # for numbers of many digits: a ray may lie that near to the border of a piece
ASIDE = (2.0**-9, 2.0**-12, 2.0**-6)  # how far to the side of a ray gradients are taken, times the step along it


@dataclass(frozen=True)
class Estimate:
    """A limit, and how far the last extrapolations of it differ."""

    value: float
    error: float

    def is_sharp(self, scale: float) -> bool:
        return self.error <= 1e-5 * scale


def limit(quotient: Callable[[Any], Any], starts: Sequence[int] = STARTS, one: Any = 1.0) -> Estimate:
    """Of a quotient at step 0, by Neville's scheme: where it is analytic in the step, from that side."""
    found = []
    for start in starts:
        found.append(_extrapolated(quotient, start, one))
        if found[-1].error <= 1e-9 * max(1, abs(found[-1].value)):
            break
    return min(found, key=lambda each: each.error)


def _extrapolated(quotient: Callable[[Any], Any], start: int, one: Any) -> Estimate:
    row: list[Any] = []
    best = Estimate(0.0, inf)
    for level in range(LEVELS):
        new = [quotient(one / 2 ** (start + level))]
        for order, before in enumerate(row, 1):
            new.append(new[-1] + (new[-1] - before) / (2**order - 1))
        if level >= 3:  # two orders in a row that agree, with each other and with the row before
            error = max(abs(float(new[-1] - new[-2])), abs(float(new[-1] - row[-1])))
            if isfinite(error) and error < best.error:
                best = Estimate(float(new[-1]), error)
        row = new
    return best


def slope(f: Value, x: Sequence[Any], v: Sequence[Any], starts: Sequence[int] = STARTS, one: Any = 1.0) -> Estimate:
    """The one-sided derivative along a direction."""
    here = f(x)
    return limit(lambda t: (f([a + t * b for a, b in zip(x, v, strict=True)]) - here) / t, starts, one)


def partial(
    f: Value, x: Sequence[Any], v: Sequence[Any], at: int, aside: Any, starts: Sequence[int] = STARTS, one: Any = 1.0
) -> Estimate:
    """The derivative in one coordinate at points x + tv, as t goes to 0: central differences across the ray.

    The step to the side is a multiple of t, so that both points stay on the piece of the program that the ray is in.
    Two such steps are combined, which leaves an error of the fourth order in ``aside``.
    """

    def across(t: Any, c: Any) -> Any:
        ends = []
        for side in (c, -c):
            ends.append(f([a + t * (b + side * (i == at)) for i, (a, b) in enumerate(zip(x, v, strict=True))]))
        return (ends[0] - ends[1]) / (2 * c * t)

    return limit(lambda t: (4 * across(t, aside / 2) - across(t, aside)) / 3, starts, one)


def jumps(f: Value, x: Sequence[Any], directions: Sequence[Sequence[Any]], one: Any = 1.0) -> bool:
    """Whether the program is not Lipschitz at the point, by values along rays: quotients that grow without end.

    For a jump they double whenever the step is halved, for a root they grow by a fixed power.
    """
    here = f(x)
    for v in directions:
        steps = [one / 2**power for power in (8, 16, 24, 32)]
        sizes = [float(abs(f([a + t * b for a, b in zip(x, v, strict=True)]) - here) / t) for t in steps]
        if not all(map(isfinite, sizes)):
            return True
        if sizes[-1] > 1e-2 and all(2 * small < large for small, large in pairwise(sizes)):
            return True
    return False


@dataclass(frozen=True)
class Doubt:
    """Where an element and the values differ, and whether the values are sharp enough to say so."""

    what: str
    said: float
    found: Estimate
    is_sharp: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.said:.9g}, the values say {self.found.value:.9g} (within {self.found.error:.1g})"


def agrees(said: float, found: Estimate, scale: float) -> bool:
    """Within what the extrapolation leaves open, and never within more than a ten-thousandth."""
    return abs(said - found.value) <= min(1e-6 * scale + 8 * found.error, 1e-4 * scale)


def doubt_of_slope(
    f: Value, x: Sequence[Any], v: Sequence[Any], said: float, what: str = "slope", one: Any = 1.0
) -> Doubt | None:
    """What is wrong with a one-sided derivative, if anything is."""
    starts = STARTS if isinstance(one, float) else EXACT_STARTS
    found = slope(f, x, v, starts, one)
    scale = max(abs(said), abs(found.value), 1e-3) if isfinite(said) else 1.0
    return None if agrees(said, found, scale) else Doubt(what, said, found, found.is_sharp(scale))


def doubts_of_gradient(
    f: Value, x: Sequence[Any], v: Sequence[Any], gradient: Sequence[float], one: Any = 1.0
) -> list[Doubt]:
    """The entries of a gradient that are not those of the piece which a direction points into."""
    scale = max([1e-3, *(abs(each) for each in gradient if isfinite(each))])
    found = (_doubt_of_entry(f, x, v, at, said, scale, one) for at, said in enumerate(gradient))
    return [each for each in found if each is not None]


def _doubt_of_entry(
    f: Value, x: Sequence[Any], v: Sequence[Any], at: int, said: float, scale: float, one: Any
) -> Doubt | None:
    """None if some extrapolation confirms it: rays may lie near the border of a piece, and kinks near the point."""
    found = []
    for start in STARTS if isinstance(one, float) else EXACT_STARTS:
        for aside in ASIDE if isinstance(one, float) else (*ASIDE, EXACTLY_ASIDE):
            found.append(partial(f, x, v, at, one * aside, (start,), one))
            if agrees(said, found[-1], scale):
                return None
    best = min(found, key=lambda each: each.error)
    return Doubt(f"entry {at}", said, best, best.is_sharp(scale))
