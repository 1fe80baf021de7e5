"""What a program does a little further along a direction: it answers where derivatives cannot, and tells jumps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subgrad.clarke.certificate import jumps
from subgrad.clarke.linear import carrying_tangents
from subgrad.clarke.passes import Decide, NotFollowed, Site
from subgrad.clarke.program import Program, Vector
from subgrad.clarke.refused import Refused

# A run on answers that no point gives may go anywhere.
NOT_FOLLOWED = (NotFollowed, RuntimeError, ValueError, IndexError)
STEPS = {torch.float64: (2.0**-20, 2.0**-24), torch.float32: (2.0**-8, 2.0**-10), torch.bfloat16: (2.0**-3, 2.0**-4)}
STEPS_IN_DOUBLE = 2.0**-17, 2.0**-21
MOST = 1 << 20  # sites of one run


def answers_nearby(program: Program, ahead: Vector, count: int = 1) -> list[list[tuple[Site, Any]]]:
    """What every site answers at points a little further on; in double precision if the program can be run so."""
    if program.may_be_widened:
        try:
            return [_noted(program, ahead, step, wide=True) for step in STEPS_IN_DOUBLE[:count]]
        except Exception as error:  # some operator, or the program itself, does not take double precision
            if isinstance(error, Refused):
                raise
    dtype = min((leaf.dtype for leaf in program.leaves), key=lambda each: -torch.finfo(each).eps)
    steps = STEPS.get(dtype, STEPS[torch.bfloat16])
    return [_noted(program, ahead, step, wide=False) for step in steps[:count]]


def _noted(program: Program, ahead: Vector, step: float, wide: bool) -> list[tuple[Site, Any]]:
    current = Decide(0.0, is_nearby=True, most=MOST)
    with carrying_tangents():
        program.nearby(current, ahead, step, wide)
    return current.noted


def check_continuity(program: Program, ahead: Vector, slope: float, turned: Sequence[str], sharply: bool) -> None:
    """Where comparisons turn, the program may jump on one side of the point: its values on both must come together.

    Sharply means in double precision, if the program can be run so.
    """
    eps = max((torch.finfo(leaf.dtype).eps for leaf in program.leaves), default=0.0)
    step, wide = eps**0.5, sharply and program.may_be_widened
    if wide:
        try:
            below, above = _both_sides(program, ahead, step, wide)
            eps = torch.finfo(torch.float64).eps
        except Exception:  # some operator, or the program itself, does not take double precision
            return check_continuity(program, ahead, slope, turned, sharply=False)
    else:
        below, above = _both_sides(program, ahead, step, wide)
    apart = abs(above - below)
    if not apart > 64 * eps * (abs(above) + abs(below)) + 8 * step * abs(slope):
        return
    below, above = _both_sides(program, ahead, step / 8, wide)
    if abs(above - below) > apart / 2:
        raise jumps(below, above, turned)


def _both_sides(program: Program, ahead: Vector, step: float, wide: bool) -> tuple[float, float]:
    below, above = (float(program.moved(ahead, side * step, wide)) for side in (-1, 1))
    return below, above
