"""The limit of torch's own gradients at a point, where no rule leads to an element: held against values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from subgrad.clarke.engine.certificate import check_reaches
from subgrad.clarke.engine.dead_entries import is_finite
from subgrad.clarke.engine.directions import random_direction
from subgrad.clarke.engine.errors import Refused, where_raised
from subgrad.clarke.engine.extrapolation import derivative_limit, gradient_limit
from subgrad.clarke.engine.found import Found
from subgrad.clarke.engine.near_kinks import has_near_kinks
from subgrad.clarke.engine.program import Program, Vector
from subgrad.clarke.engine.quotients import SEED_BESIDE, Values
from subgrad.clarke.engine.rule import Site
from subgrad.clarke.engine.terms import product_of, sizes


@dataclass(frozen=True)
class Limit:
    """Where torch's own gradients nearby tend to.

    Attributes:
        program: whose.
        value: of the program at the point.
        expected: the sites of the plain run, and whether they met a kink.
        is_random: the direction is, so that what lies beside it is asked as well.
        error: why rules did not lead to an element.
    """

    program: Program
    value: Tensor
    expected: list[tuple[Site, bool]]
    is_random: bool
    error: Exception | None

    def found(self, seed: int, direction: Vector | None, trusts: bool = False) -> Found:
        """The limit of torch's own gradients, held against the program's values unless others are to be believed."""
        ahead = random_direction(self.program.leaves, seed) if direction is None else direction
        is_hidden = not trusts and bool(self.expected) and has_near_kinks(self.program, self.expected)
        gradient = None if trusts or is_hidden else self._of_torch(ahead)
        if gradient is None:
            gradient = None if is_hidden else gradient_limit(self.program, ahead, self.is_random)
            if gradient is None or not (trusts or self._is_limit(gradient, ahead)):
                raise as_refusal(self.error, self.program) from self.error
        slope = product_of(gradient, ahead)
        found = Found(tuple(gradient), self.value, slope=slope, product=slope, direction=tuple(ahead))
        return replace(found, extrapolated=True)

    def _of_torch(self, ahead: Vector) -> list[Tensor] | None:
        """Torch's own gradient at the point, if it is what the values do: it is exact where a limit is not quite."""
        try:
            gradient = self.program.gradient_nearby(ahead, 0.0, wide=False)
            return gradient if is_finite(gradient) and self._is_limit(gradient, ahead) else None
        except Exception:  # torch has none
            return None

    def _is_limit(self, gradient: Sequence[Tensor], ahead: Vector) -> bool:
        size = sizes(gradient, ahead, self.program.leaves)
        slope = product_of(gradient, ahead)
        check_reaches(self.program, ahead, self.value, slope, size)
        along = Values(self.program, ahead)
        agree = along.agree([slope], size) and along.agree_nearest(slope, float(self.value), size)
        if agree and (not self.is_random or along.agree_across(gradient)):
            return True
        # Beside a slope that is infinite, quotients tend to their limit as slowly as the root of the step.
        return self._is_limit_of_quotients(gradient, ahead)

    def _is_limit_of_quotients(self, gradient: Sequence[Tensor], ahead: Vector) -> bool:
        directions = [ahead, *self._beside(ahead)] if self.is_random else [ahead]
        for each in directions:
            limit, slope = derivative_limit(self.program, each), product_of(gradient, each)
            here, there = float(self.value), float(self.program.moved(each, 2.0**-8, self.program.may_be_widened))
            scale = abs(slope) + sizes(gradient, each, ()).moved
            blur = 1e-9 * abs(here) + 1e-8 * abs(there - here) / 2.0**-8
            if limit is None or not abs(float(limit[0]) - slope) <= 1e-5 * scale + blur:
                return False
        return True

    def _beside(self, ahead: Vector) -> Iterator[Vector]:
        """A direction that lies near, and in which the program is defined."""
        beside = random_direction(self.program.leaves, SEED_BESIDE)
        for share in (2.0**-1, 2.0**-4, 2.0**-7):
            found = [v + share * w.clamp(-1, 1) * v.abs() for v, w in zip(ahead, beside, strict=True)]
            if is_finite([self.program.moved(found, 2.0**-8, self.program.may_be_widened)]):
                yield found
                return


def as_refusal(error: Exception | None, program: Program) -> Refused:
    if isinstance(error, Refused):
        return Refused(*error.args)
    if error is None:
        return Refused(f"The gradients of the program at {program.line} have no limit at this point.")
    return Refused(f"The program cannot be followed at {where_raised(error)}: {type(error).__name__}: {error}")
