"""Where no rule leads on: torch's own gradients a little further along the direction, extrapolated to the point.

For a random direction the program is smooth a little further on, whatever is written in it: transforms inside,
operators without forward mode, repeated eigenvalues. The gradients there tend to an element of the Clarke set, by its
definition, and as polynomials in the step, or its root, if the program is smooth from the point on. Five steps give the
limit to about twelve digits in double precision; two orders of extrapolation that differ say that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product

import torch
from torch import Tensor

from subgrad.clarke.engine.program import Program, Vector
from subgrad.torch_internals.transforms import pytree

COUNT = 5  # steps, each half of the one before
LARGEST = (2.0**-8, 2.0**-13, 2.0**-18, 2.0**-4)  # of these; the last where nearer ones lose all to cancellation
NEARER = (2.0**-13, 2.0**-18)
# Gradients are a polynomial in the step; or in its root, of which the steps are then the squares: x sqrt(x) at 0.
POWERS = (1, 2)
# How far two orders of extrapolation may differ, of the largest entry.
ALLOWED = {torch.float64: 1e-8, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-3}

Sample = Callable[[float, bool], list[Tensor]]  # at a step, in double precision or as it is


def limit(
    program: Program, sample: Sample, largest: Sequence[float] = LARGEST, floor: float = 0.0
) -> list[Tensor] | None:
    """What samples tend to as the step goes to 0; None if they do not, or are known to too few digits.

    A floor is by how much rounding blurs them.
    """
    dtype = max((leaf.dtype for leaf in program.leaves), key=lambda each: torch.finfo(each).eps)
    wide = program.may_be_widened
    if not wide and dtype != torch.float64:
        return None
    try:
        return next(_limits(sample, wide, ALLOWED[dtype], largest, floor), None)
    except Exception:  # some operator does not take double precision, or nothing can be differentiated here
        return None


def _limits(
    sample: Sample, wide: bool, allowed: float, largest: Sequence[float], floor: float
) -> Iterator[list[Tensor]]:
    for step, power in product(largest, POWERS):
        table = [sample(step / 2 ** (power * number), wide) for number in range(COUNT)]
        before, last = _extrapolated(table[1:]), _extrapolated(table)
        if all(bool(each.isfinite().all()) for each in last):
            scale = max((float(each.abs().amax()) for each in (*last, *table[0]) if each.numel()), default=0.0)
            gap = max(
                (float((a - b).abs().amax()) for a, b in zip(before, last, strict=True) if a.numel()), default=0.0
            )
            if gap <= allowed * scale + floor:
                yield [_known(a, b) for a, b in zip(before, last, strict=True)]


def _known(before: Tensor, last: Tensor) -> Tensor:
    """What two orders of extrapolation have no digit of in common is 0."""
    return torch.where(last.abs() <= 8 * (last - before).abs(), 0.0, last)


def _extrapolated(table: list[list[Tensor]]) -> list[Tensor]:
    """Neville's scheme for steps that are halved: polynomials through all samples, at 0."""
    order = 1
    while len(table) > 1:
        factor = 2.0**order
        table = [
            [(factor * b - a) / (factor - 1) for a, b in zip(one, other, strict=True)] for one, other in pairwise(table)
        ]
        order += 1
    return table[0]


def gradient_limit(program: Program, ahead: Vector, is_random: bool = False) -> list[Tensor] | None:
    """The limit of torch's gradients along a direction, shaped as the leaves."""

    def sample(step: float, wide: bool) -> list[Tensor]:
        return [each.double() for each in program.gradient_nearby(ahead, step, wide, is_random)]

    found = limit(program, sample)
    return None if found is None else [each.to(leaf) for each, leaf in zip(found, program.leaves, strict=True)]


def derivative_limit(program: Program, direction: Vector, largest: Sequence[float] = LARGEST) -> list[Tensor] | None:
    """The limit of the program's difference quotients in a direction, for every floating-point tensor it returns."""
    wide = program.may_be_widened
    base = _outputs(program, direction, 0.0, wide)

    def quotients(step: float, wide: bool) -> list[Tensor]:
        further = _outputs(program, direction, step, wide)
        return [(each - here) / step for each, here in zip(further, base, strict=True)]

    value = max((float(each.abs().nan_to_num(0, 0, 0).amax()) for each in base if each.numel()), default=0.0)
    return limit(program, quotients, largest, floor=1e-8 * value)


def value_limit(program: Program, direction: Vector) -> list[Tensor] | None:
    """The limit of its values, for every floating-point tensor it returns."""
    return limit(program, lambda step, wide: _outputs(program, direction, step, wide))


def _outputs(program: Program, direction: Vector, step: float, wide: bool) -> list[Tensor]:
    found = pytree.tree_leaves(program.moved(direction, step, wide))
    return [each.double() for each in found if each.is_floating_point()]
