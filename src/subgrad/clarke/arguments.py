"""What a program is given, and what is made of what was found: tensors of trees, and trees of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import PLAIN
from subgrad.clarke.engine.environment import by_itself
from subgrad.clarke.engine.errors import defined_at
from subgrad.clarke.engine.found import Found
from subgrad.clarke.engine.program import Program
from subgrad.clarke.engine.search import find
from subgrad.torch_internals.transforms import pytree

Argnums = int | tuple[int, ...]


@dataclass(frozen=True)
class Element:
    """One element of the Clarke set of a program, and how it was found.

    Attributes:
        gradient: shaped as what the program was differentiated in.
        value: of the program.
        aux: what the program returned besides, with ``has_aux=True``.
        direction: along which the branches were decided.
        slope: the one-sided derivative of the program in that direction, from the tangent pass.
        product: the gradient times the direction. It equals ``slope`` up to rounding: the certificate.
        kinks: how many operators met a kink.
        tol: what was closer than this counted as tied. If it is not 0, the element belongs to a nearby point.
        extrapolated: no rule led to it; it is the limit of torch's own gradients along the direction, to about ten
            digits in double precision.
    """

    gradient: Any
    value: Tensor
    aux: Any
    direction: Any
    slope: float
    product: float
    kinks: int
    tol: float
    extrapolated: bool = False


class Arguments:
    """The arguments of a function as one list of leaves, those that are differentiated."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: Argnums,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        has_aux: bool,
        trust_custom: bool = False,
    ):
        self.f, self.args, self.kwargs, self.has_aux, self.trust_custom = f, args, kwargs, has_aux, trust_custom
        self.numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        if not all(-len(args) <= number < len(args) for number in self.numbers):
            raise RuntimeError(f"argnums={argnums} with {len(args)} positional arguments: give numbers of these.")
        self.numbers = [number % len(args) for number in self.numbers]
        self.is_single = isinstance(argnums, int)
        chosen = tuple([args[number] for number in self.numbers])
        self.leaves, self.tree = flattened(chosen[0] if self.is_single else chosen)
        others = [leaf for leaf in self.leaves if not isinstance(leaf, Tensor)]
        if others:
            raise RuntimeError(f"Only tensors can be differentiated in, not {type(others[0]).__name__}.")

    def program(self) -> Program:
        leaves = [leaf if type(leaf) is Tensor and not leaf.requires_grad else leaf.detach() for leaf in self.leaves]
        given = self.f, *self.args, *self.kwargs.values()
        return Program(self.call, leaves, self.line, given, trusts_custom=self.trust_custom)

    @property
    def line(self) -> str:
        return defined_at(self.f)

    def find(self, seed: int, tol: float, **given: Any) -> Found:
        return by_itself(lambda: find(self.program(), seed, tol, **given))

    def call(self, leaves: list[Tensor]) -> tuple[Any, Any]:
        found, args = self.tree(leaves), list(self.args)
        for number, argument in zip(self.numbers, (found,) if self.is_single else found, strict=True):
            args[number] = argument
        out = self.f(*args, **self.kwargs)
        if not self.has_aux:
            return out, None
        if not isinstance(out, tuple) or len(out) != 2:
            raise RuntimeError("With has_aux=True the function must return a tuple (value, aux).")
        return out

    def shaped(self, vector: Iterable[Tensor | None]) -> Any:
        pairs = zip(vector, self.leaves, strict=True)
        return self.tree([torch.zeros_like(leaf) if each is None else each for each, leaf in pairs])

    def element(self, found: Found, tol: float) -> Element:
        assert found.direction is not None
        assert found.slope is not None
        assert found.product is not None
        direction = self.shaped([each.clone() for each in found.direction])  # ours may serve again
        gradient = self.shaped(found.gradient)
        aux = without_graph(found.aux)
        numbers = found.slope, found.product, found.kinks, tol, found.extrapolated
        return Element(gradient, found.value, aux, direction, *numbers)


def flattened(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The leaves of a tree, and what makes a tree of such; for plain ones in a tenth of the time that torch takes."""
    if isinstance(tree, Tensor):
        return [tree], itemgetter(0)
    if type(tree) is dict and {*map(type, tree.values())}.issubset(PLAIN):
        names = list(tree)
        return list(tree.values()), lambda leaves: dict(zip(names, leaves, strict=True))
    leaves, spec = pytree.tree_flatten(tree)
    return leaves, lambda leaves: pytree.tree_unflatten(leaves, spec)


def without_graph(aux: Any) -> Any:
    return pytree.tree_map_only(Tensor, Tensor.detach, aux)


def require_function(name: str, f: object, argnums: object) -> None:
    """What ``grad(f, x)`` for ``grad(f)(x)`` would only say later."""
    if not callable(f):
        raise TypeError(f"subgrad.{name}: give a function, not {type(f).__name__}.")
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise TypeError(
            f"subgrad.{name}: argnums says which arguments to differentiate in, as 0 or (0, 1), not "
            f"{type(argnums).__name__}. The arguments themselves go to what it returns: subgrad.{name}(f)(x)."
        )
