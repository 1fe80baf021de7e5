"""The least element of the Clarke set, by Wolfe's algorithm on the elements that directions find; and these elements.

For a convex function the element found along a direction is one of largest product with it, which is what Wolfe's
algorithm asks for, with the direction against the least element so far (Wolfe 1976, Finding the nearest point in a
polytope).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from subgrad.clarke.generic import random_direction
from subgrad.clarke.gradients import Argnums, Arguments, Element


@dataclass(frozen=True)
class MinNorm:
    """The least element of the hull of the elements found.

    Attributes:
        element: shaped as what the program was differentiated in.
        norm: its Euclidean norm. 0, to accuracy, certifies a minimiser if the function is convex.
        gap: by how much the square of the norm could still be larger than that of the least element of the set, if the
            function is convex.
        used: how many elements were computed.
        convex: whether all of them fit a convex function. Where not, the hull may be smaller than the set.
        tol: what was closer than this counted as tied. If it is not 0, the set is that of a nearby point.
    """

    element: Any
    norm: float
    gap: float
    used: int
    convex: bool
    tol: float


def min_norm(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    seed: int = 0,
    tol: float = 0.0,
    accuracy: float | None = None,
    max_elements: int = 1000,
) -> Callable[..., MinNorm]:
    """The least element of the Clarke set of a program: where it is 0 and the program convex, a minimiser.

    >>> import torch, subgrad
    >>> f = lambda x: x.abs().sum() + (x - 1).abs().sum()
    >>> found = subgrad.min_norm(f)(torch.tensor([0.0, 0.5, 1.0]))
    >>> found.norm, found.convex
    (0.0, True)

    Args:
        f: a function that returns a scalar tensor.
        argnums: which arguments to differentiate in.
        seed: of the first direction, and of what breaks ties between directions.
        tol: quantities within it of a tie count as tied; the set is then that of a nearby point.
        accuracy: of the squared norm, relative to the elements' own; by default what their dtype allows.
        max_elements: how many to compute at most.
    """

    @wraps(f)
    def least(*args: Any, **kwargs: Any) -> MinNorm:
        arguments = Arguments(f, argnums, args, kwargs, has_aux=False)
        search = _Search(arguments, seed, tol)
        first = search.ask(None)
        if search.is_smooth:
            norm = float(first.norm())
            return MinNorm(arguments.shaped(_split(first, arguments.leaves)), norm, 0.0, 1, True, tol)
        point, gap = search.wolfe(first, search.ask, accuracy, max_elements)
        is_convex = search.is_convex()
        if not is_convex:  # then more has been found than was asked for, and all of it counts
            point, gap = search.wolfe(first, search.known, accuracy, max_elements)
        element = arguments.shaped(_split(point, arguments.leaves))
        return MinNorm(element, float(point.norm()), gap, search.used, is_convex, tol)

    return least


class _Search:
    """Wolfe's algorithm, and what was asked on the way."""

    def __init__(self, arguments: Arguments, seed: int, tol: float):
        self.arguments, self.seed, self.tol = arguments, seed, tol
        self.used, self.is_smooth = 0, False
        self.elements: list[Tensor] = []
        self.asked: list[tuple[Tensor, float]] = []  # directions, and the slopes there
        dtypes = [leaf.dtype for leaf in arguments.leaves]
        self.rounding = max(torch.finfo(dtype).eps for dtype in dtypes)

    def ask(self, direction: Tensor | None) -> Tensor:
        """The element along a direction; along a random one if none is given."""
        leaves = self.arguments.leaves
        ahead = random_direction(leaves, self.seed + self.used)
        if direction is not None:
            # A direction that is asked for ties with itself; moved by a little that is random, it does not.
            size = 4 * self.rounding**0.5 * float(direction.abs().amax())
            given = _split(direction, leaves)
            ahead = tuple(d + (size * v).to(d) for d, v in zip(given, ahead, strict=True))
        found = self.arguments.find(self.seed, self.tol, direction=ahead)
        self.used += 1
        self.is_smooth = found.direction is None
        flat = _joined(found.gradient, leaves)
        if not self.is_smooth and found.slope is not None:
            self.asked.append((_joined(ahead, leaves), found.slope))
        self.elements.append(flat)
        return flat

    def known(self, direction: Tensor) -> Tensor:
        """The element along a direction, of those that have been found."""
        return self.elements[int((torch.stack(self.elements) @ direction).argmax())]

    def wolfe(
        self, first: Tensor, ask: Callable[[Tensor], Tensor], accuracy: float | None, most: int
    ) -> tuple[Tensor, float]:
        """The least point of the hull of what is found, and the gap to the least of all."""
        corral, weights, point, gap = [first], first.new_ones(1), first, float("inf")
        for _ in range(most):
            scale = max(float(each.dot(each)) for each in corral)
            allowed = (accuracy if accuracy is not None else 16 * self.rounding) * max(scale, 1e-300)
            if float(point.dot(point)) <= allowed * self.rounding:
                return torch.zeros_like(point), 0.0
            vertex = ask(-point)
            gap = max(float(point.dot(point) - point.dot(vertex)), 0.0)
            if gap <= allowed or any(torch.equal(vertex, each) for each in corral):
                return point, gap
            corral.append(vertex)
            corral, weights, point = _inner(corral, torch.cat([weights, weights.new_zeros(1)]))
        return point, gap

    def is_convex(self) -> bool:
        """Slopes of a convex function are at least the product with any element; asked both ways, they tell."""
        for ahead, _ in list(self.asked[:1] + self.asked[-1:]):
            self.ask(-ahead)
        elements = torch.stack(self.elements)
        scale = float(elements.norm(dim=1).amax())
        for ahead, slope in self.asked:
            allowed = 64 * self.rounding**0.5 * scale * float(ahead.norm())
            if float((elements @ ahead).amax()) > slope + allowed:
                return False
        return True


def _inner(corral: list[Tensor], weights: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """Wolfe's minor cycle: drop points until the least one of the affine hull lies inside."""
    while True:
        points = torch.stack(corral)
        ideal = _affine(points)
        if bool((ideal > 1e-12).all()) or len(corral) == 1:
            return corral, ideal, ideal @ points
        falling = ideal <= 1e-12
        steps = torch.where(falling, weights / (weights - ideal).clamp(min=1e-300), torch.inf)
        step = min(float(steps.amin()), 1.0)
        weights = (1 - step) * weights + step * ideal
        kept = (weights > 1e-12).tolist()
        if all(kept):
            kept[int(torch.where(falling, weights, torch.inf).argmin())] = False
        corral = [each for each, keep in zip(corral, kept, strict=True) if keep]
        weights = weights[torch.tensor(kept)]
        weights = weights / weights.sum()


def _affine(points: Tensor) -> Tensor:
    """The weights, which sum to 1, of the least point of an affine hull."""
    base, rest = points[0], points[1:] - points[0]
    if not len(rest):
        return points.new_ones(1)
    found = torch.linalg.lstsq(rest.T, -base.unsqueeze(1), driver="gelsd").solution.squeeze(1)
    return torch.cat([1 - found.sum().unsqueeze(0), found])


def _joined(vector: Sequence[Tensor | None], leaves: Sequence[Tensor]) -> Tensor:
    """One vector on the CPU, in double precision."""
    parts = [torch.zeros_like(leaf) if each is None else each for each, leaf in zip(vector, leaves, strict=True)]
    return torch.cat([part.detach().reshape(-1).to("cpu", torch.float64) for part in parts])


def _split(vector: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    parts = vector.split([leaf.numel() for leaf in leaves])
    return tuple(part.reshape(leaf.shape).to(leaf) for part, leaf in zip(parts, leaves, strict=True))


def elements(
    f: Callable[..., Any], argnums: Argnums = 0, seed: int = 0, tol: float = 0.0, tries: int = 32
) -> Callable[..., tuple[Element, ...]]:
    """The distinct elements that some random directions find: some, and not in general all there are.

    >>> import torch, subgrad
    >>> found = subgrad.elements(torch.abs)(torch.tensor(0.0))
    >>> sorted(float(each.gradient) for each in found)
    [-1.0, 1.0]
    """

    @wraps(f)
    def found(*args: Any, **kwargs: Any) -> tuple[Element, ...]:
        arguments = Arguments(f, argnums, args, kwargs, has_aux=False)
        kept: list[Element] = []
        for number in range(tries):
            new = arguments.element(arguments.find(seed + number, tol, certify=True), tol)
            if not any(_same(new, old) for old in kept):
                kept.append(new)
            if not new.kinks:
                break  # the gradient is all there is
        return tuple(kept)

    return found


def _same(one: Element, other: Element) -> bool:
    pairs = zip(pytree.tree_leaves(one.gradient), pytree.tree_leaves(other.gradient), strict=True)
    return all(torch.allclose(mine, theirs, rtol=torch.finfo(mine.dtype).eps ** 0.5) for mine, theirs in pairs)


def directions(
    f: Callable[..., Any], argnums: Argnums = 0, seed: int = 0, tol: float = 0.0, tries: int = 32
) -> Callable[..., tuple[Any, ...]]:
    """The directions along which `elements` found each of its elements."""
    listed = elements(f, argnums, seed, tol, tries)

    @wraps(f)
    def found(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(each.direction for each in listed(*args, **kwargs))

    return found
