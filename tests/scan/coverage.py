"""Whether the table knows a kink: a row of an overload that the program calls must be hit at the very point.

A row hit beside the point as well is no evidence, since a kink is a place: what counts is an entry hit here only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scan.programs import Point, Program
from subgrad.kinks import Kink, Table

BESIDE = 2.0**-12
COPIES = ("detach", "clone")  # what a program does to its constants

Hit = tuple[Kink, torch.Tensor]


@dataclass(frozen=True)
class Trace:
    """The overloads that one call reaches, the numbers they are given, and the rows hit there."""

    overloads: tuple[str, ...]
    numbers: tuple[float, ...]
    hits: tuple[Hit, ...]


class Watch(TorchDispatchMode):
    """Looks every overload up in the table as it runs; later, in-place operators may have overwritten its arguments."""

    def __init__(self, table: Table):
        super().__init__()
        self.table = table
        self.overloads: list[str] = []
        self.numbers: list[float] = []
        self.hits: list[Hit] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, arguments = functional(func), bound(func, args, kwargs or {})
        self.overloads.append(name)
        self.numbers += [float(value) for value in arguments.values() if type(value) in (int, float)]
        for kink in self.table.of_overload(name):
            if kink.applies(arguments):
                self.hits.append((kink, torch.as_tensor(kink.hits(arguments)).detach().clone()))
        return func(*args, **(kwargs or {}))


def functional(func: Any) -> str:
    """The overload without side effects that the table knows: ``clamp`` for ``clamp_`` and ``clamp.out``."""
    name, form = func._schema.name.rpartition("::")[2], func._schema.overload_name
    form = form.removesuffix("out").removesuffix("_")
    name = name if name.startswith("__") else name.removesuffix("_")
    return f"{name}.{form}" if form else name


def bound(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, defaults included."""
    schema = func._schema.arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False))
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return {**defaults, **given, **kwargs}


def trace(program: Program, point: Point, table: Table) -> Trace:
    """What one call at a point reaches. Inputs require grad, since composites choose their path by that."""
    leaves = tuple(tensor.detach().clone().requires_grad_() for tensor in point)
    with Watch(table) as watch:
        program.call(leaves)
    called = tuple(name for name in dict.fromkeys(watch.overloads) if name not in COPIES)
    return Trace(called, tuple(dict.fromkeys(watch.numbers)), tuple(watch.hits))


def hit_here_only(program: Program, point: Point, direction: Point, table: Table) -> tuple[Kink, ...]:
    """The rows that some entry hits at a point and not a little further in a direction."""
    here = trace(program, point, table).hits
    moved = tuple(torch.add(x, v, alpha=BESIDE) for x, v in zip(point, direction, strict=True))
    try:
        program.call(moved)
    except Exception:  # outside the domain; an error of a row is not caught
        there = ()
    else:
        there = trace(program, moved, table).hits
    beside: dict[Kink, list[torch.Tensor]] = {}
    for kink, mask in there:
        beside.setdefault(kink, []).append(mask)
    found = []
    for kink, mask in here:
        others = beside.get(kink) or [torch.zeros_like(mask)]
        other = others.pop(0)
        if bool((mask & ~other).any() if mask.shape == other.shape else mask.any() and not other.any()):
            found.append(kink)
    return tuple(dict.fromkeys(found))
