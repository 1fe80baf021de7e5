"""The values of a program along a direction, and whether they move as a slope says.

They know no rule: a slope is held against quotients of values at several steps, in double precision if the program can
be run so. What rounding blurs, and what another kink lies in, says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from math import inf, isfinite, isinf
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.directions import known_direction
from subgrad.clarke.engine.duals import values
from subgrad.clarke.engine.environment import uses_tf32
from subgrad.clarke.engine.errors import Refused
from subgrad.clarke.engine.operator_certificate import is_floating
from subgrad.clarke.engine.program import Program, Vector
from subgrad.clarke.engine.terms import SMALL, Sizes, length, product_and_size, product_of, sizes
from subgrad.torch_internals.transforms import pytree

SEED_BESIDE = 15_485_863  # the seed of a direction that no other has
# Steps along a direction: pairs of them tell a slope. The first pair is enough nearly always.
STEPS = (-20, -23, -26, -30, -34, -37, -40, -46, -17, -13, -9)
# Where the point is known in single precision, and so are its ties:
STEPS_IN_SINGLE = (-14, -17, -20, -23, -26, -30, -34, -40, -46, -10, -7)
STEPS_AS_IT_IS = {torch.float64: STEPS, torch.float32: (-8, -10, -6, -12, -4), torch.bfloat16: (-2, -4, -1)}
# And how far beside it, of the step: a kink that moves along the direction by a smaller part is crossed there.
BESIDE_STEPS = (
    *((-20, -10), (-23, -10), (-20, -17), (-16, -17), (-18, -20), (-12, -22), (-9, -26)),
    *((-26, -8), (-30, -6), (-34, -5), (-37, -4), (-40, -8), (-46, -6), (-12, -5), (-15, -5), (-18, -5)),
)
BESIDE_STEPS_IN_SINGLE = (
    *((-17, -10), (-20, -10), (-17, -17), (-12, -17), (-9, -20), (-23, -8), (-26, -10), (-30, -8), (-33, -6)),
    *((-40, -8), (-46, -6), (-8, -5), (-11, -5), (-14, -5)),
)
BESIDE_STEPS_AS_IT_IS = ((-8, -3), (-6, -4), (-4, -2))
SHARE_OF_FEW = 1e-4  # at most, where a slope along and one beside are held in one sum, and leaves have few entries
SHARES = {torch.float64: 1e-5, torch.float32: 2e-3, torch.float16: 0.05, torch.bfloat16: 0.1}  # of what is summed


class Values:
    """The values of a program along a direction, as torch computes them."""

    def __init__(self, program: Program, ahead: Vector):
        self.program, self.ahead = program, ahead
        self.dtype = min({leaf.dtype for leaf in program.leaves}, key=_digits, default=torch.float64)
        self.known: dict[float, list[Tensor]] = {}
        self.blur: float | None = None  # by which rounding shifts values, once it is measured

    @cached_property
    def wide(self) -> bool:
        """Whether the program is run in double precision, whatever it is written for."""
        return self.program.may_be_widened

    @cached_property
    def entries(self) -> int:
        return sum(leaf.numel() for leaf in self.program.leaves)

    @cached_property
    def precision(self) -> torch.dtype:
        """Of the digits of single precision TensorFloat-32 uses as many as half precision has."""
        return torch.float16 if self.dtype is torch.float32 and uses_tf32(self.program.leaves) else self.dtype

    @cached_property
    def length(self) -> float:
        return length(self.ahead)

    def steps(self) -> Sequence[int]:
        """The powers of 2 to go along the direction; in double precision, if the program can be run so."""
        if self.wide and self._takes_double(lambda: self.at(2.0 ** STEPS_IN_SINGLE[0])):
            return STEPS_IN_SINGLE
        return STEPS_AS_IT_IS.get(self.dtype, STEPS_AS_IT_IS[torch.bfloat16])

    def _takes_double(self, run: Callable[[], Any]) -> bool:
        try:
            run()
        except Exception as error:  # some operator, or the program itself, does not take double precision
            if isinstance(error, Refused):
                raise
            self.wide = False
        return self.wide

    def at(self, step: float) -> list[Tensor]:
        if step not in self.known:
            self.known[step] = self._outputs(self.ahead, step)
        return self.known[step]

    def _outputs(self, direction: Vector, step: float, beside: tuple[Vector, float] | None = None) -> list[Tensor]:
        out = pytree.tree_leaves(self.program.moved(direction, step, self.wide, beside))
        return [each.double() for each in out if is_floating(each)]

    def pairs(self, scale: float) -> Iterator[tuple[list[Tensor], float, list[Tensor], float]]:
        """Values at pairs of steps, with the steps: further, then nearer."""
        for one, other in pairwise(2.0**power for power in self.steps()):
            yield self.at(one), one, self.at(other), other
        for one, other in pairwise(self._steps_of(scale)):
            yield self.at(one), one, self.at(other), other

    def _steps_of(self, scale: float) -> list[float]:
        """Steps that change the value by 2**-6 of it and less, for programs that are steep."""
        value = max(
            (float(each.abs().nan_to_num(0, 0, 0).amax()) for each in self.at(2.0 ** self.steps()[0]) if each.numel()),
            default=0.0,
        )
        if not (scale > 2.0**20 * value > 0 and self.is_sharp):
            return []
        return [2.0**-power * value / scale for power in (6, 9, 12, 16, 20)]

    @property
    def rounding(self) -> float:
        return torch.finfo(torch.float64 if self.wide else self.dtype).eps

    def agree(self, slopes: Sequence[Tensor | float], size: Sizes) -> bool:
        """Whether the values move as the slopes say, entry by entry.

        They do if they do so between two steps at which rounding does not hide it, or ever more so; or if, of the first
        three pairs of steps, none says otherwise.
        """
        return self._or_blurred(
            lambda: self._agree([torch.as_tensor(slope).detach().double() for slope in slopes], size)
        )

    def _agree(self, slopes: list[Tensor], size: Sizes) -> bool:
        entries = list(map(_Entries, slopes))
        scale = max((float(slope.abs().nan_to_num(0, 0, 0).amax()) for slope in slopes if slope.numel()), default=0.0)
        for number, (one, step, other, smaller) in enumerate(self.pairs(scale + size.moved)):
            for value, further, each in zip(one, other, entries, strict=True):
                self._compare(each, value, further, step - smaller, max(step, smaller), size)
            if all(bool(each.agreed.all()) for each in entries):
                return True
            if number == 2 and not any(bool((each.denied & ~each.agreed).any()) for each in entries):
                return True
        return not any(bool((each.denied & ~each.agreed).any()) for each in entries)

    def _or_blurred(self, judge: Callable[[], bool]) -> bool:
        """A judgement, and if it is no, once more with each measure of how far rounding really blurs the values."""
        if judge():
            return True
        for blur in self.blurs:
            self.blur = blur
            if blur and judge():
                return True
        self.blur = self.blurs[0]
        return False

    @cached_property
    def blurs(self) -> tuple[float, float]:
        """By how far values differ at points that are nearly one: by rounding, of terms that cancel as well.

        Without what a slope adds, which hides steep programs at small steps; and with it, for errors that are alike
        at such points, as those of eigenvalues are.
        """
        step = 2.0 ** self.steps()[0]
        tiny = 2.0**-30 if self.is_sharp else 2.0**-14
        found = [self.at(step * (1 + number * tiny)) for number in range(4)]
        rows = [row for row in zip(*found, strict=True) if row[0].numel()]
        bent = [(row[k] - 2 * row[k + 1] + row[k + 2]).abs() / 2 for row in rows for k in (0, 1)]
        apart = [(other - row[0]).abs() for row in rows for other in row[1:]]
        sharp, blunt = (
            max((float(each.nan_to_num(0, 0, 0).amax()) for each in of), default=0.0) for of in (bent, apart)
        )
        return sharp, blunt

    def _compare(
        self,
        each: _Entries,
        one: Tensor,
        other: Tensor,
        span: float,
        step: float,
        size: Sizes,
    ) -> None:
        """Hold one quotient, of two values a span apart and at most a step from the point, against the slope."""
        slope = each.slope
        with values():
            value, further = (x.reshape(slope.shape).to(slope.device) for x in (one, other))
            quotient, noise, scale, gap, near, is_rest = self._held(slope, value, further, span, size, self.share)
            # Ever more so, as the root of the step at least, and by more than rounding; or at another slope.
            nears, nearing, stands = (torch.zeros_like(near) for _ in range(3))
            if each.step > step:
                least = each.gap * min(0.25, 2 * (step / each.step) ** 0.5)
                nearing = (gap <= least) & (each.gap > 4 * noise)
                # Twice in a row and that near: further out the program is another one, as sqrt(x^2 + 1e-12) is |x|.
                nears = nearing & (~each.stood | (each.nearing & (gap <= 1e-3 * scale)))
                stands = ~near & ((quotient - each.quotient).abs() <= gap / 8)
        if self.blur is None and bool((nears & ~near).any()):
            self.blur = self.blurs[0]  # rounding alone comes nearer by chance, where terms larger than the value cancel
            return self._compare(each, one, other, span, step, size)
        if bool(is_rest.any()) and self.is_what_rounding_leaves:
            near = near | is_rest
        with values():
            overflows = value.isinf() | further.isinf() | ~slope.isfinite()  # which hides nothing
            is_defined = ~(value.isnan() | further.isnan())
            # Not too blurred to see the slope, or what was denied where there is none.
            is_known = ((noise <= 0.1 * scale) | ((scale == 0) & each.denied)) & (noise <= each.least / 4)
            each.agreed |= (near & is_known) | nears | overflows
            denied = ~near & ~nears & is_defined
            each.denied |= denied
            each.least = torch.where(denied, torch.minimum(each.least, gap), each.least)
            each.gap, each.step, each.quotient = gap, step, quotient
            each.stood |= stands
            each.nearing = nearing

    def _held(self, slope: Any, value: Any, further: Any, span: float, size: Sizes, share: float) -> tuple[Any, ...]:
        """One quotient against a slope, of numbers or entry by entry: the quotient, by how much rounding moves it, the
        size of what it is the sum of, how far the slope is from it, whether that is near, and whether it is a rest."""
        quotient, span = (value - further) / span, abs(span)
        noise = (self.rounding * (8 * abs(value) + 4 * size.here) + 4 * (self.blur or 0.0)) / span
        scale, gap = abs(slope) + size.moved, abs(quotient - slope)
        near = gap <= share * (scale + abs(quotient)) + noise
        # Where values do not move at all, derivatives are what rounding leaves of terms that cancel.
        is_still = abs(quotient) <= noise + 64 * self.rounding * self.length
        return quotient, noise, scale, gap, near, is_still & (gap <= self.rest) & (near ^ True)

    def agree_nearest(self, slope: float, value: float, size: Sizes) -> bool:
        """Whether they do at the smallest step at which rounding does not hide it: nothing may turn in between."""
        scale = abs(slope) + size.moved
        scale = 0.0 if scale <= self.rest else scale
        largest = max(
            (float(x.detach().abs().nan_to_num(0, 0, 0).amax()) for x in self.program.leaves if x.numel()), default=0.0
        )
        noise = self.rounding * (8 * abs(value) + 4 * size.here + 4 * largest * scale)
        step = max(100 * noise / scale, 2.0**-60) if scale else 2.0**-30
        gap = abs(self._quotient(step) - slope)
        if gap <= 0.05 * scale + 4 * noise / step + 1e-6 * self.length * (scale == 0):
            return True
        # As x sqrt(x) at 0, whose quotients tend to 0 as the root of the step; beyond a kink they would be as far off.
        return gap <= abs(self._quotient(64 * step) - slope) / 4

    def _quotient(self, step: float) -> float:
        further, near = (float(self.program.moved(self.ahead, power * step, self.wide)) for power in (2, 1))
        return (further - near) / step

    def agree_across(self, gradient: Sequence[Tensor | None]) -> bool:
        """Whether values beside the direction move as the gradient says: it is that of all that is smooth there."""
        beside = known_direction(self.program.leaves, SEED_BESIDE)
        return self._or_blurred(lambda: self._agree_across(gradient, beside))

    def agree_around(self, gradient: Sequence[Tensor | None], along: float, size: Sizes) -> bool:
        """Whether values move as the gradient says, along the direction and beside it at once.

        Between t (v + p w) and t ((1 - 2 p) v - p w) they move by 2 t p times the slope along v + w: two runs tell. The
        step t changes the value by little, and p is as small as rounding allows, so that few kinks lie in between.
        """
        beside = known_direction(self.program.leaves, SEED_BESIDE, products=True)
        across, moved = product_and_size(gradient, beside)
        size = Sizes(size.moved + moved, 2 * size.here)
        scale, value = abs(along) + size.moved, abs(float(self.program.value))  # type: ignore[arg-type]
        if not (self.is_sharp and 0 < scale < inf and value < inf):
            return False
        slope = along + across
        # In one sum two errors may cancel. Few entries add up sharply; of what does not, both are asked apart.
        share = min(self.share, SHARE_OF_FEW) if self.entries <= SMALL else self.share
        span = 16 * self.rounding * (8 * value + 4 * size.here) / (share * scale)
        first = min(2.0 ** (-19 if self.wide else -21), 2.0**-16 * value / scale or 1.0)
        for step in (first, first / 32):
            found = self._between(beside, step, min(max(span / (2 * step), 2.0**-20), 2.0**-8))
            if found is None:
                return False
            if self.is_native and abs(found[0] - float(self.program.value)) > 16 * step * scale:  # type: ignore[arg-type]
                return False  # it may jump at the point itself
            # Each step by itself: of two quotients one may come nearer by chance.
            _, noise, scale_here, _, near, is_rest = self._held(slope, *found, size, share)
            if isinf(found[0]) or isinf(found[1]) or not isfinite(slope):  # which hides nothing
                return True
            if (near or (is_rest and self.is_what_rounding_leaves)) and noise <= 0.1 * scale_here:
                return True
        return False

    def _between(self, beside: Vector, step: float, part: float) -> tuple[float, float, float] | None:
        """The values at two points a step along the direction, and their distance; None if not in double precision."""
        found: list[float] = []

        def run() -> None:
            for power, side in ((1.0, part), (1 - 2 * part, -part)):
                out = self.program.moved(self.ahead, power * step, self.wide, (beside, side * step))
                found.append(float(out))

        if not self.wide:
            run()
        elif not self._takes_double(run):
            return None
        return found[0], found[1], 2 * step * part

    def _agree_across(self, gradient: Sequence[Tensor | None], beside: Vector) -> bool:
        slope, size = product_of(gradient, beside), sizes(gradient, beside, self.program.leaves)
        entries = _Entries(torch.tensor(slope, dtype=torch.float64))
        self.steps()  # whether it can be run in double precision
        steps = BESIDE_STEPS_IN_SINGLE if self.wide else BESIDE_STEPS if self.is_sharp else BESIDE_STEPS_AS_IT_IS
        pairs = [(2.0**power, 2.0**other) for power, other in steps]
        pairs += [(step, 2.0**-8) for step in self._steps_of(abs(slope) + size.moved)]
        for number, (step, part) in enumerate(pairs):
            (one,), (other,) = (self._outputs(self.ahead, step, (beside, side * part * step)) for side in (1, -1))
            self._compare(entries, one, other, 2 * step * part, step, size)
            if bool(entries.agreed) or (number == 2 and not bool(entries.denied)):
                return True
        return not bool(entries.denied)

    @property
    def is_native(self) -> bool:
        """The program is written in double precision: its values nearby compare with that of the point."""
        return self.dtype == torch.float64 and not self.wide

    @property
    def is_sharp(self) -> bool:
        return self.wide or self.dtype == torch.float64

    @property
    def share(self) -> float:
        """What may be missing of a slope: what rounding takes of it, and what lies between the steps."""
        return SHARES[self.precision] if self.is_sharp else 0.25

    @cached_property
    def is_what_rounding_leaves(self) -> bool:
        """Whether a small derivative of values that stand still is smaller yet in double precision.

        If not, it is wrong: somebody's own derivative of a program that is scaled by little.
        """
        if not self.wide:
            return True
        try:
            gradient = self.program.gradient_nearby(self.ahead, 2.0**-14, wide=True)
        except Exception:  # it has none, or not of one number
            return True
        return sum(float(each.double().abs().sum()) for each in gradient) * self.length <= 2.0**-20 * self.rest

    @property
    def rest(self) -> float:
        """What rounding leaves of terms of the direction's size that cancel."""
        return 256 * torch.finfo(self.precision).eps * self.length


class _Entries:
    """What has been found out about the entries of one slope."""

    def __init__(self, slope: Tensor):
        self.slope = slope
        self.agreed, self.denied = (torch.zeros_like(slope, dtype=torch.bool) for _ in range(2))
        self.gap, self.step, self.quotient = torch.zeros_like(slope), 0.0, torch.zeros_like(slope)
        self.stood = torch.zeros_like(slope, dtype=torch.bool)  # quotients elsewhere, at two steps in a row
        self.nearing = torch.zeros_like(slope, dtype=torch.bool)  # the last quotient came nearer
        self.least = torch.full_like(slope, inf)  # of the gaps that were denied


def _digits(dtype: torch.dtype) -> float:
    return -torch.finfo(dtype).eps
