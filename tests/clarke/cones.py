"""Open cones in rational arithmetic: is there a direction on the positive side of all these vectors?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

Vector = tuple[int, ...]


def primitive(vector: Sequence[int | Fraction]) -> Vector:
    """The shortest integer vector in the same direction."""
    whole = lcm(*(Fraction(each).denominator for each in vector))
    scaled = [int(each * whole) for each in vector]
    shared = gcd(*scaled)
    return tuple(each // shared for each in scaled)


def dot(one: Sequence[int | Fraction], other: Sequence[int | Fraction]) -> int | Fraction:
    return sum(a * b for a, b in zip(one, other, strict=True))


def inside(normals: Sequence[Vector]) -> Vector | None:
    """A direction d with <s, d> > 0 for all normals s, or None where there is none. Either answer is proven.

    Gordan: there is none exactly when 0 lies in the hull of the normals. The first phase of the simplex method, with
    Bland's rule, looks for such weights; where it fails, its prices are the direction.
    """
    if not normals:
        return ()
    size = len(normals[0])
    weights, prices = _hull_of_zero(normals, size)
    if weights is None:
        found = primitive([-price for price in prices[:size]])
        assert all(dot(normal, found) > 0 for normal in normals)
        return found
    assert min(weights) >= 0
    assert sum(weights) == 1
    assert all(dot(weights, column) == 0 for column in zip(*normals, strict=True))
    return None


def _hull_of_zero(normals: Sequence[Vector], size: int) -> tuple[list[Fraction] | None, list[int]]:
    """Weights of the normals that sum to 1 and give 0, or None; and the prices of the rows at the end, scaled.

    All entries are integers over one denominator, the last pivot (Edmonds 1967): divisions leave no rest.
    """
    count, rows, denominator = len(normals), size + 1, 1
    # Columns: the weights, an artificial variable a row, the right-hand side.
    table = [[*line, *(0,) * rows, 0] for line in zip(*normals, strict=True)]
    table.append([*(1,) * count, *(0,) * rows, 1])
    for row, line in enumerate(table):
        line[count + row] = 1
    basis = [count + row for row in range(rows)]
    cost = [*(-sum(column) for column in zip(*table, strict=True))]
    cost[count : count + rows] = [0] * rows
    while (entering := next((column for column in range(count) if cost[column] < 0), None)) is not None:
        ratios = [
            (Fraction(line[-1], line[entering]), basis[row], row)
            for row, line in enumerate(table)
            if line[entering] > 0
        ]
        leaving = min(ratios)[2]
        by = table[leaving]
        pivot = by[entering]
        for line in (*(line for row, line in enumerate(table) if row != leaving), cost):
            factor = line[entering]
            line[:] = [(pivot * each - factor * other) // denominator for each, other in zip(line, by, strict=True)]
        basis[leaving], denominator = entering, pivot
    if cost[-1]:  # artificial variables remain: no such weights
        return None, [denominator - cost[count + row] for row in range(rows)]
    weights = [Fraction(0)] * count
    for row, column in enumerate(basis):
        if column < count:
            weights[column] = Fraction(table[row][-1], denominator)
    return weights, []
