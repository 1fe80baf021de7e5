"""The least element of the Clarke set, by Wolfe's algorithm on the elements that directions find; and these elements.

For a convex function the element found along a direction is one of largest product with it, which is what Wolfe's
algorithm asks for, with the direction against the least element so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.arguments import Argnums, Arguments, Element, require_function
from subgrad.clarke.engine.directions import random_direction
from subgrad.clarke.engine.errors import Refused
from subgrad.clarke.engine.found import Found
from subgrad.clarke.engine.wolfe import largest_entry, least_point, length
from subgrad.torch_internals.transforms import pytree

TRIES = 32  # random directions in which elements are looked for


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

    Raises:
        Refused: where the program has no such set, or its value or gradient is not finite.
    """

    require_function("min_norm", f, argnums)

    @wraps(f)
    def least(*args: Any, **kwargs: Any) -> MinNorm:
        arguments = Arguments(f, argnums, args, kwargs, has_aux=False)
        search = _Search(arguments, seed, tol)
        point, gap, is_convex = search.least(accuracy, max_elements)
        element = arguments.shaped(_split(point, arguments.leaves))
        return MinNorm(element, length(point), gap, search.used, is_convex, tol)

    return least


class _Search:
    """What is asked of a program on the way to its least element."""

    def __init__(self, arguments: Arguments, seed: int, tol: float):
        self.arguments, self.seed, self.tol = arguments, seed, tol
        self.used, self.is_smooth, self.is_finite = 0, False, True
        self.first: Found | None = None
        self.elements: list[Tensor] = []
        self.asked: list[tuple[Tensor, float]] = []  # directions, and the slopes there
        self.rounding = max((torch.finfo(leaf.dtype).eps for leaf in arguments.leaves), default=0.0)

    def least(self, accuracy: float | None = None, most: int = 1000) -> tuple[Tensor, float, bool]:
        """The least element, the gap to the least of all, and whether all that was asked fits a convex function."""
        first = self.ask(None)
        if self.is_smooth:
            return first, 0.0, True
        found = least_point(first, self.ask, self.rounding, accuracy, most)
        is_convex = self.is_convex()
        if not is_convex:  # then more has been found than was asked for, and all of it counts
            found = least_point(first, self.known, self.rounding, accuracy, most)
        return *found, is_convex

    def ask(self, direction: Tensor | None) -> Tensor:
        """The element along a direction; along a random one if none is given."""
        leaves = self.arguments.leaves
        ahead = random_direction(leaves, self.seed + self.used)
        if direction is not None:
            # A direction that is asked for ties with itself; moved by a little that is random, it does not.
            size = 4 * self.rounding**0.5 * largest_entry([direction])
            given = _split(direction, leaves)
            ahead = tuple(d + (size * v).to(d) for d, v in zip(given, ahead, strict=True))
        found = self.arguments.find(self.seed, self.tol, direction=ahead)
        self.first = self.first or found
        self.used += 1
        self.is_smooth = found.direction is None
        flat = _joined(found.gradient, leaves)
        self.is_finite = bool(found.value.isfinite().all()) and bool(flat.isfinite().all())
        if not self.is_finite:
            raise Refused(_not_finite(found.value, self.arguments.line))
        if not self.is_smooth and found.slope is not None:
            self.asked.append((_joined(ahead, leaves), found.slope))
        self.elements.append(flat)
        return flat

    def known(self, direction: Tensor) -> Tensor:
        """The element along a direction, of those that have been found."""
        elements = torch.stack(self.elements)
        return self.elements[int((elements / largest_entry(self.elements) @ direction).argmax())]

    def is_convex(self) -> bool:
        """Slopes of a convex function are at least the product with any element; asked both ways, they tell."""
        for ahead, _ in list(self.asked[:1] + self.asked[-1:]):
            self.ask(-ahead)
        unit = largest_entry(self.elements)
        elements = torch.stack(self.elements) / unit
        scale = float(elements.norm(dim=1).amax())
        for ahead, slope in self.asked:
            allowed = 64 * self.rounding**0.5 * scale * float(ahead.norm())
            if float((elements @ ahead).amax()) > slope / unit + allowed:
                return False
        return True


def _not_finite(value: Tensor, line: str) -> str:
    is_value = not bool(value.isfinite().all())
    what = (
        f"The program at {line} is {value.item()}"
        if is_value
        else f"The gradient of the program at {line} is not finite"
    )
    return (
        f"{what} here, where nothing can be certified. Compute it in a wider dtype, or bound what overflows before it "
        "does."
    )


def _joined(vector: Sequence[Tensor | None], leaves: Sequence[Tensor]) -> Tensor:
    """One vector on the CPU, in double precision."""
    parts = [torch.zeros_like(leaf) if each is None else each for each, leaf in zip(vector, leaves, strict=True)]
    return torch.cat([part.detach().reshape(-1).to("cpu", torch.float64) for part in parts])


def _split(vector: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    parts = vector.split([leaf.numel() for leaf in leaves])
    return tuple(part.reshape(leaf.shape).to(leaf) for part, leaf in zip(parts, leaves, strict=True))


def elements(
    f: Callable[..., Any], argnums: Argnums = 0, seed: int = 0, tol: float = 0.0, tries: int = TRIES
) -> Callable[..., tuple[Element, ...]]:
    """The distinct elements that some random directions find: some, and not in general all there are.

    >>> import torch, subgrad
    >>> found = subgrad.elements(torch.abs)(torch.tensor(0.0))
    >>> sorted(float(each.gradient) for each in found)
    [-1.0, 1.0]
    """

    require_function("elements", f, argnums)

    @wraps(f)
    def found(*args: Any, **kwargs: Any) -> tuple[Element, ...]:
        arguments = Arguments(f, argnums, args, kwargs, has_aux=False)
        return tuple(arguments.element(each, tol) for each in _distinct(arguments, seed, tol, tries))

    return found


def _distinct(arguments: Arguments, seed: int, tol: float, tries: int, in_vain: int | None = None) -> list[Found]:
    """What some random directions find, each element once; ``in_vain`` is after how many that find nothing to stop."""
    kept: list[Found] = []
    last = 0
    for number in range(tries):
        new = arguments.find(seed + number, tol, certify=True)
        if not any(_same(arguments.shaped(new.gradient), arguments.shaped(old.gradient)) for old in kept):
            kept.append(new)
            last = number
        if in_vain is not None and number - last >= in_vain:
            break
        if not new.kinks or not bool(new.value.isfinite().all()):
            break  # the gradient is all there is
    return kept


def _same(one: Any, other: Any) -> bool:
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(torch.allclose(mine, theirs, rtol=torch.finfo(mine.dtype).eps ** 0.5) for mine, theirs in pairs)


def least_found(arguments: Arguments, seed: int, tol: float) -> Found:
    """The least element, as `min_norm` finds it; where the program overflows, what torch has there."""
    search = _Search(arguments, seed, tol)
    try:
        point, _, _ = search.least()
    except Refused:
        if search.first is None or search.is_finite or search.used > 1:
            raise
        return search.first
    assert search.first is not None
    return replace(search.first, gradient=_split(_without_noise(point), arguments.leaves))


def _without_noise(point: Tensor) -> Tensor:
    """Entries that differ by the rounding of the weights alone made equal: a step along them must not break ties."""
    unit = largest_entry([point]) * 2.0**-40
    return torch.round(point / unit) * unit


def mean_found(arguments: Arguments, seed: int, tol: float) -> Found:
    """The mean of the distinct elements that random directions find, until many in a row find nothing new."""
    found = _distinct(arguments, seed, tol, 8 * TRIES, in_vain=TRIES)
    flat = [_joined(each.gradient, arguments.leaves) for each in found]
    mean = torch.stack([each / len(flat) for each in flat]).sum(0)
    return replace(found[0], gradient=_split(_without_noise(mean), arguments.leaves)) if len(found) > 1 else found[0]


def directions(
    f: Callable[..., Any], argnums: Argnums = 0, seed: int = 0, tol: float = 0.0, tries: int = TRIES
) -> Callable[..., tuple[Any, ...]]:
    """The directions along which `elements` found each of its elements."""
    listed = elements(f, argnums, seed, tol, tries)

    @wraps(f)
    def found(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(each.direction for each in listed(*args, **kwargs))

    return found
