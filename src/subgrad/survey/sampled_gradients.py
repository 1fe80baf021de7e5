"""The set of generalised gradients of a call, from gradients at points near it: nothing of the table is used.

The generalised gradient at a point is the hull of the limits of gradients nearby. So: perturb the point at random, in
pairs of opposite steps, take torch's own gradients there, and find the least element of their hull.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from subgrad.apply.use import use

STEP = 2.0**-20  # so small that smooth parts do not bend, so large that float64 sees the ties apart
DRAWS = 48

Function = Callable[..., Tensor]


def gradients_nearby(function: Function, inputs: Sequence[Tensor]) -> Tensor:
    """Gradients of a scalar function at points near its inputs, flattened: one row each."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(DRAWS):
        moves = [torch.rand(each.shape, generator=generator, dtype=each.dtype) - 0.5 for each in inputs]
        for sign in (STEP, -STEP):
            rows.append(gradient(function, [each + sign * move for each, move in zip(inputs, moves, strict=True)]))
    return torch.stack(rows)


def gradient(function: Function, inputs: Sequence[Tensor]) -> Tensor:
    """Torch's own gradient of a scalar function, flattened."""
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    with use("torch"):
        found = torch.autograd.grad(function(*leaves), leaves, materialize_grads=True)
    return torch.cat([each.flatten() for each in found])


def least(points: Tensor) -> Tensor:
    """The point of least norm in the hull of some points, by Wolfe's algorithm (1976)."""
    corral = [int(points.norm(dim=1).argmin())]
    weights = torch.ones(1, dtype=points.dtype)
    best = points[corral[0]]
    for _ in range(10 * len(points)):
        candidate = int((points @ best).argmin())
        if points[candidate] @ best > best @ best - 1e-12 * points.square().sum(1).max() or candidate in corral:
            break
        corral, weights = [*corral, candidate], torch.cat([weights, weights.new_zeros(1)])
        while True:
            affine = _least_of_affine_hull(points[corral])
            if (affine > 0).all():
                weights = affine
                break
            # Move towards it until the first weight vanishes, and drop that point.
            falling = affine <= 0
            step = (weights[falling] / (weights[falling] - affine[falling])).min()
            weights = weights + step * (affine - weights)
            kept = weights > 1e-14
            corral = [point for point, keep in zip(corral, kept.tolist(), strict=True) if keep]
            weights = weights[kept]
        best = weights @ points[corral]
    return best


def _least_of_affine_hull(points: Tensor) -> Tensor:
    """The weights, which sum to 1, of the least point of the plane through some points."""
    size = len(points)
    system = torch.ones(size + 1, size + 1, dtype=points.dtype)
    system[:size, :size] = points @ points.T
    system[size, size] = 0
    right = torch.zeros(size + 1, dtype=points.dtype)
    right[size] = 1
    return torch.linalg.lstsq(system, right[:, None], driver="gelsd").solution[:size, 0]


def distance(point: Tensor, points: Tensor) -> float:
    """How far a point is from the hull of some points."""
    return float(least(points - point).norm())
