"""The Clarke set of a piecewise polynomial program at a point, exactly.

A germ is a quantity near the point: its value there, and its slope, the linear form that it is on the present cell of
directions. Where a program asks for the sign of a quantity that vanishes, the cell is cut in two, and the program runs
once for every cell with an interior. The slopes of the results are the gradients of the pieces around the point; their
hull is the Clarke set (Scholtes 2012, proposition 4.3.1), and if there is only one, it is the gradient.

Where value and slope of a difference both vanish, its sides agree to first order, and either will do: programs here are
continuous. So first derivatives suffice, also where products bend a quantity.

Nothing of the library is used, nor of torch: numbers are rational, and cells are found by linear programming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key

from clarke.cones import Vector, dot, inside, primitive

Number = int | Fraction
Gradient = tuple[Number, ...]


@dataclass(frozen=True)
class Germ:
    value: Number
    slope: Gradient

    def __add__(self, other: Germ | Number) -> Germ:
        if isinstance(other, Germ):
            slope = tuple(a + b for a, b in zip(self.slope, other.slope, strict=True))
            return Germ(self.value + other.value, slope)
        return Germ(self.value + other, self.slope)

    def __sub__(self, other: Germ | Number) -> Germ:
        return self + -1 * other

    def __mul__(self, other: Germ | Number) -> Germ:
        if isinstance(other, Germ):
            slope = tuple(self.value * b + other.value * a for a, b in zip(self.slope, other.slope, strict=True))
            return Germ(self.value * other.value, slope)
        return Germ(other * self.value, tuple(other * each for each in self.slope))

    def __rsub__(self, other: Number) -> Germ:
        return -1 * self + other

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Germ:
        return -1 * self


class Cell:
    """An open cone of directions, cut smaller by the signs that are decided in it."""

    def __init__(self, decided: tuple[int, ...] = ()) -> None:
        self.normals: dict[Vector, None] = {}  # the cone: positive on all of them
        self.signs = list(decided)  # in the order of the questions
        self.asked = 0
        self.witness: Vector = ()  # a direction inside, once one was needed
        self.untried: list[tuple[int, ...]] = []  # beginnings of `signs` on the other side of a cut

    def sign(self, germ: Germ | Number) -> int:
        """Of the quantity, at the point if it does not vanish there, else throughout the cell; 0 if it is 0 there."""
        value = germ.value if isinstance(germ, Germ) else germ
        if value:
            return 1 if value > 0 else -1
        if not isinstance(germ, Germ) or not any(germ.slope):
            return 0
        normal = primitive(germ.slope)
        opposite = tuple(-each for each in normal)
        if normal in self.normals or opposite in self.normals:
            return 1 if normal in self.normals else -1
        if self.asked == len(self.signs):
            self._decide(normal, opposite)
        sign = self.signs[self.asked]
        self.asked += 1
        self.normals[normal if sign > 0 else opposite] = None
        return sign

    def _decide(self, normal: Vector, opposite: Vector) -> None:
        """The next sign: that of the witness; the other side is left for another run, if it has an interior."""
        side = dot(normal, self.witness) if self.witness else 0
        if not side:
            self.witness = inside([*self.normals, normal]) or inside([*self.normals, opposite]) or ()
            side = dot(normal, self.witness)
        sign = 1 if side > 0 else -1
        if inside([*self.normals, opposite if sign > 0 else normal]):
            self.untried.append((*self.signs, -sign))
        self.signs.append(sign)

    # What programs are made of, by signs alone.

    def larger(self, one: Germ, other: Germ) -> Germ:
        return one if self.sign(one - other) >= 0 else other

    def smaller(self, one: Germ, other: Germ) -> Germ:
        return other if self.sign(one - other) >= 0 else one

    def largest(self, germs: Iterable[Germ]) -> Germ:
        first, *rest = germs
        for each in rest:
            first = self.larger(first, each)
        return first

    def smallest(self, germs: Iterable[Germ]) -> Germ:
        return -self.largest([-each for each in germs])

    def sorted(self, germs: Iterable[Germ]) -> list[Germ]:
        return sorted(germs, key=cmp_to_key(lambda one, other: self.sign(one - other)))

    def bent(self, germ: Germ, left: Number, right: Number, at: Number = 0) -> Germ:
        """A line with slope ``left`` up to a place and ``right`` beyond it, 0 there."""
        away = germ - at
        return (right if self.sign(away) >= 0 else left) * away

    def clamped(self, germ: Germ, low: Number | None, high: Number | None) -> Germ:
        constant = germ * 0
        if low is not None:
            germ = self.larger(germ, constant + low)
        return germ if high is None else self.smaller(germ, constant + high)


Function = Callable[[Cell, list[Germ]], Germ]


class TooManyPieces(Exception):  # noqa: N818
    """More cells than were asked for: no failure, only long."""


def _units(point: Sequence[Number]) -> list[Germ]:
    size = len(point)
    return [Germ(value, tuple(int(row == column) for column in range(size))) for row, value in enumerate(point)]


def pieces(function: Function, point: Sequence[Number], most: int = 4096) -> dict[Gradient, Vector | None]:
    """The gradients of all pieces around the point, each with a direction inside one of its cells."""
    units = _units(point)
    found: dict[Gradient, Vector | None] = {}
    untried: list[tuple[int, ...]] = [()]
    for _ in range(most):
        cell = Cell(untried.pop())
        gradient = function(cell, units).slope
        if gradient not in found:
            found[gradient] = inside(list(cell.normals))
        untried += cell.untried
        if not untried:
            return found
    raise TooManyPieces


def value_of(function: Function, point: Sequence[Number]) -> Number:
    """The value at a point: by germs without a slope, which no sign can depend on."""
    return function(Cell(), [Germ(each, ()) for each in point]).value


def directional_derivative(function: Function, point: Sequence[Number], direction: Sequence[Number]) -> Number:
    """The one-sided derivative in a direction: one variable, and the cell of positive steps."""
    cell = Cell()
    cell.normals[(1,)] = None
    germs = [Germ(value, (step,)) for value, step in zip(point, direction, strict=True)]
    return function(cell, germs).slope[0]


class Lexicographic(Cell):
    """The cell that a list of directions points into: the first in which a quantity moves decides its sign."""

    def __init__(self, directions: Sequence[Sequence[Number]]) -> None:
        super().__init__()
        self.directions = directions

    def sign(self, germ: Germ | Number) -> int:
        value, slope = (germ.value, germ.slope) if isinstance(germ, Germ) else (germ, ())
        moves = (dot(slope, direction) for direction in self.directions if slope)
        decisive = next((each for each in (value, *moves) if each), 0)
        return (decisive > 0) - (decisive < 0)


def lexicographic_element(
    function: Function, point: Sequence[Number], directions: Sequence[Sequence[Number]]
) -> Gradient:
    """Nesterov's lexicographic gradient, which the vector forward mode of Khan and Barton (2015) evaluates."""
    return function(Lexicographic(directions), _units(point)).slope


def in_hull(element: Sequence[Number], vertices: Iterable[Gradient]) -> bool:
    """Whether the element is a mean of the vertices, exactly: 0 is in the hull of the differences."""
    differences = [tuple(a - b for a, b in zip(vertex, element, strict=True)) for vertex in vertices]
    if any(not any(each) for each in differences):
        return True
    return inside([primitive(each) for each in differences]) is None
