"""Wolfe's algorithm: the least point of the hull of vertices that are asked for (Wolfe 1976).

Vectors are divided by their largest entry before anything is squared: slopes of 1e300, or 1e-300, are no overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def least_point(
    first: Tensor, ask: Callable[[Tensor], Tensor], rounding: float, accuracy: float | None, most: int
) -> tuple[Tensor, float]:
    """The least point of the hull, and by how much its square may exceed that of the least of all.

    Args:
        first: a vertex.
        ask: for the vertex of largest product with a direction.
        rounding: of the vertices, relative.
        accuracy: of the square, relative to those of the vertices; by default what rounding allows.
        most: vertices to ask for.
    """
    corral, weights, gap = [first], first.new_ones(1), float("inf")
    allowed = 16 * rounding if accuracy is None else accuracy
    for _ in range(most):
        unit = largest_entry(corral)
        points = torch.stack(corral) / unit
        point = weights @ points
        # What rounding leaves of a sum that is 0 is small beside its terms.
        terms = float(weights @ points.norm(dim=1))
        if float(point.dot(point)) <= max(allowed, 256 * rounding) * rounding * terms * terms:
            return torch.zeros_like(first), 0.0
        vertex = ask(-point)
        gap = _gap(point, vertex, unit)
        if gap <= allowed * float((points * points).sum(1).amax()) or any(torch.equal(vertex, each) for each in corral):
            return point * unit, gap * unit * unit
        corral.append(vertex)
        kept, weights = _inner(torch.stack(corral) / largest_entry(corral), torch.cat([weights, weights.new_zeros(1)]))
        corral = [corral[each] for each in kept]
    unit = largest_entry(corral)
    return (weights @ (torch.stack(corral) / unit)) * unit, gap * unit * unit


def largest_entry(vectors: Sequence[Tensor]) -> float:
    """The largest size of an entry; 1 where there is none, or only zeros."""
    return max((float(each.abs().amax()) for each in vectors if each.numel()), default=0.0) or 1.0


def length(vector: Tensor) -> float:
    """The Euclidean norm."""
    unit = largest_entry([vector])
    return float((vector / unit).norm()) * unit


def _gap(point: Tensor, vertex: Tensor, unit: float) -> float:
    """The square of a point, less its product with a vertex, which may be much larger; both in squares of a unit."""
    larger = max(1.0, largest_entry([vertex / unit]))
    return max(float((point / larger).dot(point) - point.dot(vertex / unit / larger)), 0.0) * larger


def _inner(points: Tensor, weights: Tensor) -> tuple[list[int], Tensor]:
    """Wolfe's minor cycle: drop points until the least of the affine hull lies inside; which stay, and weights."""
    kept = list(range(len(points)))
    while True:
        ideal = _affine(points[kept])
        if bool((ideal > 1e-12).all()) or len(kept) == 1:
            return kept, ideal
        falling = ideal <= 1e-12
        steps = torch.where(falling, weights / (weights - ideal).clamp(min=1e-300), torch.inf)
        step = min(float(steps.amin()), 1.0)
        weights = (1 - step) * weights + step * ideal
        stays = (weights > 1e-12).tolist()
        if all(stays):
            stays[int(torch.where(falling, weights, torch.inf).argmin())] = False
        kept = [each for each, stay in zip(kept, stays, strict=True) if stay]
        weights = weights[torch.tensor(stays)]
        weights = weights / weights.sum()


def _affine(points: Tensor) -> Tensor:
    """The weights, which sum to 1, of the least point of an affine hull."""
    base, rest = points[0], points[1:] - points[0]
    if not len(rest):
        return points.new_ones(1)
    found = torch.linalg.lstsq(rest.T, -base.unsqueeze(1), driver="gelsd").solution.squeeze(1)
    return torch.cat([1 - found.sum().unsqueeze(0), found])
