"""What one operation of a random program is: torch code, and the same in numbers of any precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath

from clarke import operations as piecewise
from clarke.germs import Cell, Germ

Vector = list[Any]  # of floats or numbers of mpmath
Given = dict[str, Any]
Exact = Callable[..., Vector]
mp = mpmath.mp.clone()
mp.dps = 50


@dataclass(frozen=True)
class Operation:
    """An operation on vectors.

    Attributes:
        exact: the result in numbers of mpmath, of the parameters and the arguments.
        ways: torch code; ``{y}`` is the result, ``{x}``, ``{z}`` and ``{u}`` are the arguments.
        parameters: the names of what it takes beside vectors.
        arity: how many vectors it takes, all as wide as the first.
        narrowest: how wide these must at least be.
        widest: and at most.
        largest: how large their entries may be, lest float64 rounds too much.
        share: how often it is drawn, against others.
        suits: whether it can be drawn at all, of the parameters and the arguments.
    """

    exact: Exact
    ways: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    arity: int = 1
    narrowest: int = 1
    widest: int = 4
    largest: float = 50
    share: int = 2
    suits: Callable[..., bool] = lambda given, *vectors: True


def entrywise(one: Callable[..., Any]) -> Exact:
    """Of a function of numbers, with the parameters as keywords."""
    return lambda given, *vectors: [one(*each, **given) for each in zip(*vectors, strict=True)]


def _of_germs(operation: piecewise.Operation) -> Operation:
    def exact(given: Given, *vectors: Vector) -> Vector:
        germs = ([Germ(each, ()) for each in vector] for vector in vectors)
        return [each.value for each in operation.exact(Cell(), given, *germs)]

    ways = tuple(code for _, code in operation.ways)
    return Operation(exact, ways, operation.parameters, operation.arity, operation.narrowest, share=1 + len(ways) // 5)


PIECEWISE = {name: _of_germs(each) for name, each in piecewise.OPERATIONS.items()}


def sign(x: Any) -> int:
    return (x > 0) - (x < 0)


def relu(x: Any) -> Any:
    return x if x > 0 else 0 * x


def clamp(x: Any, low: Any, high: Any) -> Any:
    return min(max(x, mp.mpf(low)), mp.mpf(high))


def softmax(x: Vector) -> Vector:
    top = max(x)
    sizes = [mp.exp(each - top) for each in x]
    return [each / sum(sizes) for each in sizes]


def logsumexp(x: Vector) -> Any:
    top = max(x)
    return top + mp.log(sum(mp.exp(each - top) for each in x))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))
