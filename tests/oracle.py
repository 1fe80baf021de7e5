"""What the conventions mean, computed from forward values alone.

The generalised gradient at a point is the hull of the gradients at points nearby. So: perturb the arguments at random,
take central differences there, and collect the distinct gradients. Nothing of the library's own derivation is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np

NEAR, STEP = 2.0**-15, 2.0**-27  # how far the perturbed points lie, and the differences taken there
DRAWS = 80

Function = Callable[..., float]
Point = Mapping[str, float]


def vertices(function: Function, point: Point, among: tuple[str, ...]) -> np.ndarray:
    """The distinct gradients of a function of named numbers near a point: one row each."""
    generator = np.random.default_rng(0)
    found = [gradient(function, _perturbed(point, among, generator), among) for _ in range(DRAWS)]
    return np.unique(np.round(found, 3), axis=0)


def gradient(function: Function, point: Point, among: tuple[str, ...]) -> list[float]:
    def along(name: str, step: float) -> float:
        return function(**{**point, name: point[name] + step})

    return [(along(name, STEP) - along(name, -STEP)) / (2 * STEP) for name in among]


def _perturbed(point: Point, among: tuple[str, ...], generator: np.random.Generator) -> Point:
    # At least a quarter of NEAR away from the place and from each other's perturbations, so that no difference crosses.
    moves = generator.choice([-4, -3, -2, -1, 1, 2, 3, 4], size=len(among), replace=False) * (NEAR / 4)
    return {**point, **{name: point[name] + move for name, move in zip(among, moves, strict=True)}}


def moved(point: Point, name: str, by: float) -> Point:
    """The point with one argument moved further than perturbations reach."""
    return {**point, name: point[name] + by * 8 * NEAR}


def least(hull: np.ndarray) -> np.ndarray:
    """The point of least norm in the hull of a few points: the least over all small simplices among them."""
    candidates = [hull[i] for i in range(len(hull))]
    for size in (2, 3):
        candidates += [
            point for rows in combinations(hull, size) if (point := _least_inside(np.array(rows))) is not None
        ]
    return min(candidates, key=lambda point: float(point @ point))


def _least_inside(rows: np.ndarray) -> np.ndarray | None:
    """The least point of the affine hull, if it lies inside the simplex."""
    gram = rows @ rows.T
    size = len(rows)
    system = np.block([[gram, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
    weights = np.linalg.lstsq(system, np.r_[np.zeros(size), 1.0], rcond=None)[0][:size]
    return weights @ rows if weights.min() > -1e-9 and abs(weights.sum() - 1) < 1e-6 else None


def element(
    convention: str, function: Function, point: Point, operands: tuple[str, ...], differentiated: tuple[str, ...]
) -> dict[str, float]:
    """What a convention takes at a point for the differentiated operands, by its definition."""
    hull = vertices(function, point, operands)
    columns = [operands.index(name) for name in differentiated]
    if convention == "min-norm":
        chosen = least(hull[:, columns])
    elif convention == "documented":
        chosen = least(hull)[columns]
    elif convention == "mean":
        chosen = hull.mean(axis=0)[columns]
    else:
        side = {"left": -1, "right": 1}[convention]
        tied = [name for name in differentiated if _takes_part(function, point, operands, name)]
        first = (tied or differentiated)[0]
        chosen = vertices(function, moved(point, first, side), operands).mean(axis=0)[columns]
    return dict(zip(differentiated, (float(weight) for weight in chosen), strict=True))


def _takes_part(function: Function, point: Point, operands: tuple[str, ...], name: str) -> bool:
    """Whether moving an operand either way changes which gradients are near: it is one of those that tie."""
    column = operands.index(name)
    return len(np.unique(vertices(function, point, operands)[:, column])) > 1
