"""What a program does a little further along a direction: it answers where derivatives cannot, and tells jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from math import isfinite, isinf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.clarke.engine.certificate import jumps
from subgrad.clarke.engine.duals import carrying_tangents, values
from subgrad.clarke.engine.errors import Refused
from subgrad.clarke.engine.extrapolation import derivative_limit, value_limit
from subgrad.clarke.engine.passes import Decide, NotFollowed, lines
from subgrad.clarke.engine.program import Program, Vector
from subgrad.clarke.engine.quotients import Values
from subgrad.clarke.engine.rule import Site
from subgrad.clarke.engine.terms import sizes

# A run on answers that no point gives may go anywhere.
NOT_FOLLOWED = (NotFollowed, RuntimeError, ValueError, LookupError, ArithmeticError, AssertionError)
STEPS = {torch.float64: (2.0**-20, 2.0**-24), torch.float32: (2.0**-8, 2.0**-10), torch.bfloat16: (2.0**-3, 2.0**-4)}
STEPS_IN_DOUBLE = 2.0**-17, 2.0**-21
STEP_IN_DOUBLE = 2.0**-12  # to look for jumps of what is written for single precision or less
MOST = 1 << 20  # sites of one run


def answers_nearby(program: Program, ahead: Vector, count: int = 1, cuts: bool = False) -> list[list[tuple[Site, Any]]]:
    """What every site answers at points a little further on; in double precision if the program can be run so.

    Where derivatives are cut, only tangents tell what depends on the leaves.
    """
    if program.may_be_widened:
        try:
            return [_noted(program, ahead, step, True, cuts) for step in STEPS_IN_DOUBLE[:count]]
        except Exception as error:  # some operator, or the program itself, does not take double precision
            if isinstance(error, Refused):
                raise
    dtype = min((leaf.dtype for leaf in program.leaves), key=lambda each: -torch.finfo(each).eps)
    steps = STEPS.get(dtype, STEPS[torch.bfloat16])
    return [_noted(program, ahead, step, False, cuts) for step in steps[:count]]


def _noted(program: Program, ahead: Vector, step: float, wide: bool, cuts: bool) -> list[tuple[Site, Any]]:
    current = Decide(0.0, is_nearby=True, most=MOST)
    with carrying_tangents() if cuts else nullcontext():
        program.nearby(current, ahead, step, wide)
    return current.noted


def check_values(
    value: Tensor, reached: Tensor, further: Callable[[float], Tensor], slope: Tensor, current: Decide, program: Program
) -> None:
    """Branches must lead to the program's value, entry by entry, or it jumps there: as `check_value` of one number."""
    eps = torch.finfo(value.dtype).eps
    with values():
        reached = reached.to(value)
        gap, size = (reached - value).abs(), reached.abs() + value.abs()
        is_near = ((gap <= 64 * eps * size + eps**0.5 * slope.abs()) & ~gap.isinf()) | ~value.isfinite()
        is_about_equal = gap <= max(eps, current.tol) ** 0.5 * (1 + value.abs())
    if bool(is_near.all()):
        return
    answered = lines(current.changed)
    with values():
        far = ~is_near if answered and not current.tol else ~(is_near | is_about_equal)
        if answered and not current.tol:  # which may only be what rounding leaves
            far = far & (((further(eps**0.75) - value).abs() > gap / 2) | ~is_about_equal)
        if not bool(far.any()):
            return
        one, other = (each[far].flatten()[0].item() for each in (value, reached))
    if answered:
        raise jumps(one, other, answered)
    raise Refused(
        f"The program at {program.line} does not return the same when it is run again: {one:.6g}, then {other:.6g}."
    )


def check_all_reach(along: Values, slopes: Sequence[Tensor | float], turned: Sequence[str]) -> None:
    """Values along a direction must come to those of the point, entry by entry."""
    along.steps()  # whether it can be run in double precision
    # Far enough for numbers that the program itself rounds to single precision.
    step, share = (2.0**-20 if along.wide else along.rounding**0.75), 64 * along.rounding
    for number, (slope, here, further) in enumerate(zip(slopes, along.at(0.0), along.at(step), strict=True)):
        with values():
            apart, least = _beyond(here, further, share)
            jumping = apart > least + 8 * step * torch.as_tensor(slope).to(apart).abs()
            if not bool(jumping.any()):
                continue
        nearer = torch.stack([along.at(step / 8 * part)[number] for part in (1, 1.25, 1.5, 1.75)])
        with values():
            left, least = _beyond(here, nearer[0], share)
            spread = nearer.amax(0) - nearer.amin(0)  # rounding moves them as well, where terms cancel
            jumping &= (left > torch.stack([apart / 2, least, 4 * spread]).amax(0)) | left.isinf()
            if bool(jumping.any()):
                jumping &= left > share * _of_a_whole_step(along, number, here)
            if not bool(jumping.any()):
                continue
            one, other = (each[jumping].flatten()[0].item() for each in (here, further))
        raise jumps(one, other, turned)


def _of_a_whole_step(along: Values, number: int, here: Tensor) -> Tensor:
    """How far values go in one: terms of that size may cancel at the point, and leave their rounding."""
    try:
        return (along.at(1.0)[number] - here).abs().nan_to_num(0.0, 0.0)
    except Exception:  # it need not be defined there
        return torch.zeros_like(here)


def _beyond(here: Tensor, further: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """How far apart values are, and how far rounding may move them."""
    return (further - here).abs(), share * (further.abs() + here.abs()).nan_to_num(posinf=0.0)


def check_continuity(program: Program, ahead: Vector, value: Tensor, slope: float, turned: Sequence[str]) -> None:
    """Where comparisons turn, the program may jump on the other side of the point: values there must come back."""
    eps = torch.finfo(value.dtype).eps
    here, step = float(value), -(eps**0.5)
    behind = float(program.moved(ahead, step, wide=False))
    apart = abs(behind - here)
    if isinf(apart) or apart > 64 * eps * (abs(here) + abs(behind)) + 8 * abs(step * slope):
        behind = float(program.moved(ahead, step / 8, wide=False))
        if isinf(behind) or abs(behind - here) > max(apart / 2, 64 * eps * (abs(here) + abs(behind))):
            raise jumps(here, behind, turned)


def check_continuity_sharply(program: Program, ahead: Vector, slope: float, turned: Sequence[str]) -> None:
    """The same of values on both sides, in double precision if the program can be run so."""
    eps = max((torch.finfo(leaf.dtype).eps for leaf in program.leaves), default=0.0)
    _check_continuity_at(eps**0.5, eps, 0.0, program, ahead, slope, turned)
    if program.may_be_widened and eps**0.5 > 2 * STEP_IN_DOUBLE:
        # Such a step hides small jumps; but what is one number in few bits may be two in double precision.
        _check_continuity_at(STEP_IN_DOUBLE, eps, 4 * eps, program, ahead, slope, turned)


def _check_continuity_at(
    step: float, eps: float, blur: float, program: Program, ahead: Vector, slope: float, turned: Sequence[str]
) -> None:
    wide = program.may_be_widened
    try:
        apart = _apart(program, ahead, step, wide)
    except Exception as error:  # some operator, or the program itself, does not take double precision
        if not wide or isinstance(error, Refused):
            raise
        wide = False
        apart = _apart(program, ahead, step, wide)
    share = max(64 * (torch.finfo(torch.float64).eps if wide else eps), blur)
    if isinf(apart.gap) or apart.gap > share * apart.size + 8 * step * abs(slope):
        nearer = _apart(program, ahead, step / 8, wide)
        is_far = isinf(nearer.gap) or nearer.gap > max(apart.gap / 2, share * nearer.size)
        if is_far and not (_meet(program, ahead) or _is_rounding(program, ahead, nearer, share, wide)):
            raise jumps(nearer.below, nearer.above, turned)


def _is_rounding(program: Program, ahead: Vector, near: _Apart, share: float, wide: bool) -> bool:
    """Whether a gap is what terms that cancel leave, if they are as large as values go in a whole step."""
    try:
        far = _apart(program, ahead, 1.0, wide)
    except Exception:  # it need not be defined there
        return False
    whole = max(abs(far.below - near.below), abs(far.above - near.above))
    return isfinite(whole) and near.gap <= share * whole


def _meet(program: Program, ahead: Vector) -> bool:
    """Whether values tend to the same from both sides, where very near the point cancellation hides it."""
    found = [value_limit(program, each) for each in (ahead, [-v for v in ahead])]
    return None not in found and torch.allclose(*(each[0] for each in found if each), rtol=1e-8, atol=1e-8)


SPANS = (2.0**-8, 2.0**-11, 2.0**-14)  # at which cancellation does not hide the values


def check_slopes_are_bounded(program: Program, gradient: Sequence[Tensor | None], directions: Iterable[Vector]) -> None:
    """Quotients of values must not grow without end, as they do beside a root: by as much at every step, or by more."""
    wide = program.may_be_widened
    here = float(program.moved([torch.zeros_like(leaf) for leaf in program.leaves], 0.0, wide))
    for direction in directions:
        known = sizes(gradient, direction, ()).moved
        for ahead in (direction, [-v for v in direction]):
            found = [abs(float(program.moved(ahead, step, wide)) - here) / step for step in SPANS]
            if not all(map(isfinite, found)):  # it is not defined there
                continue
            first, second = found[1] - found[0], found[2] - found[1]
            grows = found[2] > 2 * known and second > 0.9 * first > 1e-3 * (1 + found[0])
            if grows and derivative_limit(program, ahead) is None:  # which is known from further away
                raise Refused(f"The slope of the program at {program.line} is infinite in some direction.")


class _Apart(NamedTuple):
    below: float
    above: float

    @property
    def gap(self) -> float:
        return abs(self.above - self.below)

    @property
    def size(self) -> float:
        return abs(self.above) + abs(self.below)


def _apart(program: Program, ahead: Vector, step: float, wide: bool) -> _Apart:
    return _Apart(*(float(program.moved(ahead, side * step, wide)) for side in (-1, 1)))
