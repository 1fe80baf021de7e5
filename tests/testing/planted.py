"""Functions whose derivatives are known exactly, and the same with a wrong one planted at one point.

Nothing of the library is used: kinked functions are random programs whose sets are computed in rational arithmetic
(`clarke.germs`), and their backward returns those numbers, whatever autograd makes of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import torch
from clarke.germs import Cell, Germ, Gradient, TooManyPieces, lexicographic_element, pieces
from clarke.random_programs import Program, random_program
from scipy.optimize import linprog
from torch import Tensor

MOST = 512  # pieces of a program
DEEPEST = 6
CLEAR = 1e-11  # from 0: numbers of these programs round by less


def function_with(program: Program, at_the_point: Sequence[Any]) -> Callable[[Tensor], Tensor]:
    """A program whose gradient is the exact one, and at its point the one that is given."""
    value, point = program.compiled(), program.tensor()
    planted = torch.tensor([float(each) for each in at_the_point], dtype=torch.float64)

    class Exact(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return value(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            (x,) = ctx.saved_tensors
            return grad * (planted if torch.equal(x, point) else exact_gradient(program, x))

    return Exact.apply


def exact_gradient(program: Program, x: Tensor) -> Tensor:
    """That of the piece which a generic direction from here points into: the only one, nearly everywhere.

    In floating point where no sign is in doubt, and in fractions, which take twenty times as long, where one is.
    """
    point = x.tolist()
    units = [[Fraction(int(row == column)) for row in range(len(point))] for column in range(len(point))]
    try:
        found = program(
            InFloatingPoint(), [Germ(each, tuple(map(float, unit))) for each, unit in zip(point, units, strict=True)]
        ).slope
    except InDoubt:
        generic = [[Fraction(3**row + 7 * row, 5**row + 1) for row in range(len(point))]]
        found = lexicographic_element(program, [Fraction(each) for each in point], [*generic, *units])
    return torch.tensor([float(each) for each in found], dtype=torch.float64)


class InDoubt(Exception):  # noqa: N818
    """A sign that rounding may have changed."""


class InFloatingPoint(Cell):
    """Signs of numbers that have been rounded."""

    def sign(self, germ: Any) -> int:
        value, slope = (germ.value, germ.slope) if isinstance(germ, Germ) else (germ, ())
        if value == 0 and not any(slope):
            return 0
        if not abs(value) > CLEAR:
            raise InDoubt
        return 1 if value > 0 else -1


@dataclass(frozen=True)
class Kinked:
    """A program, and the gradients of all pieces around its point, whose hull is the set there."""

    program: Program
    vertices: tuple[Gradient, ...]

    @property
    def matrix(self) -> np.ndarray:
        return np.array([[float(each) for each in vertex] for vertex in self.vertices])

    def element(self, generator: Random) -> list[float]:
        """One of the set: a vertex, the mean, or one in between."""
        kind = generator.randrange(3)
        if kind == 0:
            return list(self.matrix[generator.randrange(len(self.vertices))])
        weights = np.array([1.0 if kind == 1 else generator.random() ** 4 for _ in self.vertices])
        return list(weights @ self.matrix / weights.sum())

    def distance(self, gradient: Sequence[float]) -> float:
        """How far a gradient is from the set, in its largest entry; relative to what is large there."""
        matrix, count = self.matrix, len(self.vertices)
        scale = 1 + np.abs(matrix).max(0)
        above = np.c_[matrix.T, -scale]
        below = np.c_[-matrix.T, -scale]
        bounds = np.r_[gradient, [-each for each in gradient]]
        total = np.r_[np.ones(count), 0.0][None]
        found = linprog(np.r_[np.zeros(count), 1.0], np.r_[above, below], bounds, total, [1.0])
        return float(found.x[-1])


def kinked(generator: Random) -> Kinked:
    """A random program that has a kink at its point."""
    while True:
        program = random_program(generator.choice, DEEPEST)
        try:
            found = tuple(pieces(program, program.point, MOST))
        except TooManyPieces:
            continue
        if len(found) > 1:
            return Kinked(program, found)


# What goes wrong, by the ways in which it does.


def both(given: Kinked, generator: Random) -> list[float]:
    """(1, 1) at a tie: what several pieces return, added up."""
    chosen = generator.sample(range(len(given.vertices)), 2)
    return list(given.matrix[chosen].sum(0))


def beyond(given: Kinked, generator: Random) -> list[float]:
    """A slope past the end of the set, on the line through two elements."""
    one, other = given.matrix[generator.sample(range(len(given.vertices)), 2)]
    return list(one + generator.choice((0.1, 0.25, 1.0)) * (one - other))


def opposite(given: Kinked, generator: Random) -> list[float]:
    """The wrong sign."""
    return [-each for each in given.element(generator)]


def nothing(given: Kinked, generator: Random) -> list[float]:
    """A gradient that got lost."""
    return [0.0] * len(given.program.point)


def undefined(given: Kinked, generator: Random) -> list[float]:
    """0 / 0 on the way."""
    element = given.element(generator)
    element[generator.randrange(len(element))] = float("nan")
    return element


def one_entry(given: Kinked, generator: Random) -> list[float]:
    """One entry wrong, the others right."""
    element = given.element(generator)
    element[generator.randrange(len(element))] += generator.choice((-1.0, 1.0, 0.5, -0.25))
    return element


def scaled(given: Kinked, generator: Random) -> list[float]:
    """A factor that was forgotten."""
    return [generator.choice((0.5, 2.0, 1.1)) * each for each in given.element(generator)]


def mixed_up(given: Kinked, generator: Random) -> list[float]:
    """The right numbers in the wrong places: bounds or arguments inverted."""
    element = given.element(generator)
    return element[1:] + element[:1] if len(element) > 1 else [given.matrix.sum() - element[0]]


WRONG: dict[str, Callable[[Kinked, Random], list[float]]] = {
    each.__name__: each for each in (both, beyond, opposite, nothing, undefined, one_entry, scaled, mixed_up)
}
LEAST = 0.02  # how far from the set what is planted lies at least; a tolerance of 0.001 is to see it


def wrong(generator: Random) -> tuple[Kinked, str, list[float]]:
    """A program with an element that is none, and the way in which it is wrong."""
    while True:
        given, name = kinked(generator), generator.choice(list(WRONG))
        element = WRONG[name](given, generator)
        if not np.isfinite(element).all() or given.distance(element) > LEAST:
            return given, name, element
