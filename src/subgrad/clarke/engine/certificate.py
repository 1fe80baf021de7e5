"""What an element must satisfy, whatever rules led to it.

- The branches taken lead to the value of the program, or it jumps there.
- The gradient times the direction is the slope of the tangent pass.
- Both are what the program's own values do along the direction, at several steps, in double precision if it can be run
  so. This knows no rule, and sees what no rule has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, isinf, isnan

import torch
from torch import Tensor

from subgrad.clarke.engine.errors import Denied, Jumps, Refused
from subgrad.clarke.engine.extrapolation import value_limit
from subgrad.clarke.engine.passes import Decide, lines
from subgrad.clarke.engine.program import Program, Vector
from subgrad.clarke.engine.quotients import Values
from subgrad.clarke.engine.terms import Sizes, numbers, product_of, sizes


def check_value(value: Tensor, reached: Tensor, current: Decide, program: Program, ahead: Vector, slope: float) -> None:
    """The branches taken must lead to the value of the program, or it jumps there."""
    one, other = numbers([value, reached])
    # A jump is neither what rounding leaves of the value nor what the derivative contributes.
    eps = torch.finfo(value.dtype).eps
    if one == other or not isfinite(one):
        return
    if abs(other - one) <= 64 * eps * (abs(one) + abs(other)) + eps**0.5 * abs(slope) < inf:
        return
    # What is taken for tied is not: values move by the tolerance times slopes that nobody knows.
    is_about_equal = abs(other - one) <= max(eps, current.tol) ** 0.5 * (1 + abs(one))
    answered = lines(current.changed)
    if is_about_equal and (current.tol or not answered):
        return
    if not answered:
        raise Refused(
            f"The program at {program.line} does not return the same when it is run again: {one:.6g}, then {other:.6g}."
        )
    further = float(program.moved(ahead, eps**0.75, wide=False))
    if abs(further - one) > abs(other - one) / 2 or further == other or current.tol:
        raise jumps(one, other, answered)
    if not is_about_equal:
        raise Refused(f"The program at {program.line} is {one:.6g}, and {other:.6g} on the branches that rules take.")


def check_reaches(program: Program, ahead: Vector, value: Tensor, slope: float, size: Sizes) -> None:
    """Values along a direction must come to that of the point; if not at once, from where cancellation hides none."""
    eps = torch.finfo(value.dtype).eps
    here, step = float(value), eps**0.75
    blur = 64 * eps * (2 * abs(here) + size.here)
    gap = abs(float(program.moved(ahead, step, wide=False)) - here)
    if gap > blur + 8 * abs(step * slope):
        nearer, *others = (float(program.moved(ahead, step / 8 * part, wide=False)) for part in (1, 1.25, 1.5, 1.75))
        spread = max(nearer, *others) - min(nearer, *others)  # rounding moves them as well, where terms cancel
        is_far = isinf(nearer) or abs(nearer - here) > max(gap / 2, blur, 4 * spread)
        if is_far and not _tend_to(program, ahead, value):
            raise jumps(here, nearer, [program.line])


def _tend_to(program: Program, ahead: Vector, value: Tensor) -> bool:
    """(1 - cos x) / x^2 is 0 very near 0, by cancellation alone, and tends to 1/2."""
    found = value_limit(program, ahead)
    return found is not None and bool(torch.isclose(found[0], value.double().reshape(found[0].shape), 1e-8, 1e-8))


def jumps(here: float, further: float, answered: Sequence[str]) -> Refused:
    if isnan(further):  # as of 0 / 0 behind a comparison that keeps it out where it is run
        return Refused(f"The program is nan on the branches that rules take. What turns there: {answered[0]}.")
    return Jumps(
        f"The program jumps: it is {here:.6g} here and {further:.6g} a little further on, so that it has no "
        f"generalised gradient. What turns there: {'; '.join(answered[:5])}."
    )


def certified(
    gradient: Sequence[Tensor | None], ahead: Sequence[Tensor], slope: float, along: Values, doubtful: Sequence[str]
) -> float:
    """The gradient times the direction, which is the slope to what rounding allows; with the lines to name if not.

    What cancels in the sums of a program leaves a rest in both: where they differ, the program's values decide.
    """
    product = product_of(gradient, ahead)
    rounding = max([torch.finfo(dtype).eps for dtype in {v.dtype for v in ahead}], default=0.0)
    share = min(32 * rounding**0.5, 0.25)
    if abs(product - slope) <= share * abs(slope):  # as nearly always; the rest only allows for more
        return product
    size = sizes(gradient, ahead, along.program.leaves)
    if not isfinite(size.moved) or max(abs(product), abs(slope)) <= along.rest:
        return product  # nothing is hidden: the gradient itself is not finite; or only rounding is left of it
    if not abs(product - slope) <= share * (size.moved + abs(slope)) and not along.agree([product], size):
        raise Refused(
            f"The gradient that torch derives is not that of the program's values: along the direction it says "
            f"{product:.6g}, and the values move by {slope:.6g}. A part of the program has a derivative of its own "
            "making: a straight-through trick, detach, no_grad, or a custom autograd.Function. Compute what is meant "
            "to be constant outside of the function, or pass trust_custom=True to take custom functions at their word. "
            f"Where to look: {'; '.join(doubtful)}."
        )
    return product


def hold_against_values(
    gradient: Sequence[Tensor | None], slope: float, along: Values, doubtful: Sequence[str], beside: bool = True
) -> None:
    """The slope must be what the values of the program do along the direction, and the gradient what they do beside."""
    size = sizes(gradient, along.ahead, along.program.leaves)
    if not isfinite(size.moved) or not isfinite(slope):
        return
    if beside and along.agree_around(gradient, slope, size):
        return
    if along.is_native and along.program.value is not None:
        check_reaches(along.program, along.ahead, along.program.value, slope, size)
    if not (along.agree([slope], size) and (not beside or along.agree_across(gradient))):
        raise Denied(
            f"The derivative that was found, {slope:.6g} along the direction, is not what the program's values do. "
            f"Some part of it jumps, or has a derivative of its own making, where nothing could see it. Where to look: "
            f"{'; '.join(doubtful)}."
        )
