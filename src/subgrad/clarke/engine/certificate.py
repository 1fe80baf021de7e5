"""What an element must satisfy, whatever rules led to it.

- The branches taken lead to the value of the program, or it jumps there.
- The gradient times the direction is the slope of the tangent pass.
- Both are what the program's own values do along the direction, at several steps, in double precision if it can be run
  so. This knows no rule, and sees what no rule has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import hypot, inf, isfinite, isinf, isnan
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.directions import random_direction
from subgrad.clarke.engine.duals import values
from subgrad.clarke.engine.environment import uses_tf32
from subgrad.clarke.engine.errors import Denied, Jumps, Refused
from subgrad.clarke.engine.extrapolation import value_limit
from subgrad.clarke.engine.operator_certificate import is_floating
from subgrad.clarke.engine.passes import Decide, lines
from subgrad.clarke.engine.program import Program, Vector
from subgrad.torch_internals.tensors import flatten_dense_tensors
from subgrad.torch_internals.transforms import pytree

SEED_BESIDE = 15_485_863  # the seed of a direction that no other has
SMALL = 10_000  # entries; what has more is checked in ways that cost less
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


@dataclass(frozen=True)
class Sizes:
    """How large the terms are that a slope is the sum of.

    Attributes:
        moved: of the gradient's entries times those of the direction.
        here: of the gradient's entries times the point's own, whose last bits are lost when it is moved.
    """

    moved: float
    here: float


class Values:
    """The values of a program along a direction, as torch computes them."""

    def __init__(self, program: Program, ahead: Vector):
        self.program, self.ahead = program, ahead
        self.wide = program.may_be_widened
        self.entries = sum(leaf.numel() for leaf in program.leaves)
        self.dtype = min({leaf.dtype for leaf in program.leaves}, key=_digits, default=torch.float64)
        # Of the digits of single precision TensorFloat-32 uses as many as half precision has.
        self.precision = torch.float16 if self.dtype is torch.float32 and uses_tf32(program.leaves) else self.dtype
        self.known: dict[float, list[Tensor]] = {}
        self.blur: float | None = None  # by which rounding shifts values, once it is measured

    @cached_property
    def length(self) -> float:
        with values():
            return hypot(*numbers([torch.linalg.vector_norm(each).double() for each in self.ahead]))

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
        """A judgement, and if it is no, once more with how far rounding really blurs the values."""
        if judge():
            return True
        self._measure_blur()
        return bool(self.blur) and judge()

    def _measure_blur(self) -> None:
        """By how far values differ at points that are nearly one: by rounding, of terms that cancel as well."""
        if self.blur is not None:
            return
        step = 2.0 ** self.steps()[0]
        tiny = 2.0**-30 if self.is_sharp else 2.0**-14
        found = [self.at(step * (1 + number * tiny)) for number in range(4)]
        rows = zip(*found, strict=True)  # a slope moves them evenly, rounding does not
        bent = [(row[k] - 2 * row[k + 1] + row[k + 2]).abs() / 2 for row in rows if row[0].numel() for k in (0, 1)]
        self.blur = max((float(each.nan_to_num(0, 0, 0).amax()) for each in bent), default=0.0)

    def _compare(
        self,
        each: _Entries,
        one: Tensor,
        other: Tensor,
        span: float,
        step: float,
        size: Sizes,
        share: float | None = None,
    ) -> None:
        """Hold one quotient, of two values a span apart and at most a step from the point, against the slope."""
        share = self.share if share is None else share
        slope = each.slope
        with values():
            value, further = (x.reshape(slope.shape).to(slope.device) for x in (one, other))
            gap = value - further
            quotient, span = gap / span, abs(span)
            noise = (self.rounding * (8 * value.abs() + 4 * size.here) + 4 * (self.blur or 0.0)) / span
            scale = slope.abs() + size.moved
            allowed = share * (scale + quotient.abs()) + noise
            # Where values do not move at all, derivatives are what rounding leaves of terms that cancel.
            is_still = quotient.abs() <= noise + 64 * self.rounding * self.length
            gap = (quotient - slope).abs()
            near = gap <= allowed
            is_rest = is_still & (gap <= self.rest) & ~near
            # Ever more so, as the root of the step at least, and by more than rounding; or at another slope.
            nears, nearing, stands = (torch.zeros_like(near) for _ in range(3))
            if each.step > step:
                least = each.gap * min(0.25, 2 * (step / each.step) ** 0.5)
                nearing = (gap <= least) & (each.gap > 4 * noise)
                # Twice in a row and that near: further out the program is another one, as sqrt(x^2 + 1e-12) is |x|.
                nears = nearing & (~each.stood | (each.nearing & (gap <= 1e-3 * scale)))
                stands = ~near & ((quotient - each.quotient).abs() <= gap / 8)
        if self.blur is None and bool((nears & ~near).any()):
            self._measure_blur()  # rounding alone comes nearer by chance, where terms larger than the value cancel
            return self._compare(each, one, other, span, step, size, share)
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
        beside = random_direction(self.program.leaves, SEED_BESIDE)
        return self._or_blurred(lambda: self._agree_across(gradient, beside))

    def agree_around(self, gradient: Sequence[Tensor | None], along: float, size: Sizes) -> bool:
        """Whether values move as the gradient says, along the direction and beside it at once.

        Between t (v + p w) and t ((1 - 2 p) v - p w) they move by 2 t p times the slope along v + w: two runs tell. The
        step t changes the value by little, and p is as small as rounding allows, so that few kinks lie in between.
        """
        beside = random_direction(self.program.leaves, SEED_BESIDE, products=True)
        size = Sizes(size.moved + sizes(gradient, beside, ()).moved, 2 * size.here)
        scale, value = abs(along) + size.moved, abs(float(self.program.value))  # type: ignore[arg-type]
        if not (self.is_sharp and 0 < scale < inf and value < inf):
            return False
        slope = torch.tensor(along + product_of(gradient, beside), dtype=torch.float64)
        # In one sum two errors may cancel. Few entries add up sharply; of what does not, both are asked apart.
        share = min(self.share, SHARE_OF_FEW) if self.entries <= SMALL else self.share
        span = 16 * self.rounding * (8 * value + 4 * size.here) / (share * scale)
        first = min(2.0 ** (-19 if self.wide else -21), 2.0**-16 * value / scale or 1.0)
        for step in (first, first / 32):
            found = self._between(beside, step, min(max(span / (2 * step), 2.0**-20), 2.0**-8))
            if found is None:
                return False
            if self.is_native and abs(float(found[0]) - float(self.program.value)) > 16 * step * scale:  # type: ignore[arg-type]
                return False  # it may jump at the point itself
            entries = _Entries(slope)  # each step by itself: of two quotients one may come nearer by chance
            self._compare(entries, *found, step, size, share)
            if bool(entries.agreed):
                return True
        return False

    def _between(self, beside: Vector, step: float, part: float) -> tuple[Tensor, Tensor, float] | None:
        """The values at two points a step along the direction, and their distance; None if not in double precision."""
        found: list[Tensor] = []

        def run() -> None:
            found.extend(self._outputs(self.ahead, step, (beside, part * step)))
            found.extend(self._outputs(self.ahead, (1 - 2 * part) * step, (beside, -part * step)))

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
    pairs = _pairs(gradient, ahead)
    product = _product(pairs)
    rounding = max((torch.finfo(v.dtype).eps for v in ahead), default=0.0)
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


def numbers(tensors: Sequence[Tensor]) -> list[float]:
    """Scalars on a device, all read at once."""
    if all(each.is_cpu for each in tensors):  # where there is nothing to wait for
        return [each.item() for each in tensors]
    with values():
        if any(each.shape or each.dtype != tensors[0].dtype or each.device != tensors[0].device for each in tensors):
            tensors = [each.reshape(()).to(tensors[0].device, torch.float64) for each in tensors]
        return torch.stack(list(tensors)).tolist()


@dataclass(frozen=True)
class _Pairs:
    """The gradient and the direction, leaf by leaf; those that are small are one vector for each device."""

    large: list[tuple[Tensor, Tensor]]
    small: list[tuple[Tensor, Tensor]]


def _dense(each: Tensor) -> Tensor:
    return each if each.layout is torch.strided else each.to_dense()


def _pairs(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor]) -> _Pairs:
    large: list[tuple[Tensor, Tensor]] = []
    small: dict[torch.device, list[tuple[Tensor, Tensor]]] = {}
    with values():  # where no rule of ours is in the way
        for each, v in zip(gradient, ahead, strict=True):
            pair = torch.zeros_like(v) if each is None else _dense(each), v
            if v.numel() > SMALL and v.dtype in (torch.float32, torch.float64):
                large.append((pair[0].reshape(-1), v.reshape(-1)))
            else:
                small.setdefault(v.device, []).append(pair)
        return _Pairs(large, [_joined(pairs) for pairs in small.values()])


def _joined(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    gradient, ahead = (flatten_dense_tensors(parts).double() for parts in zip(*pairs, strict=True))
    return gradient, ahead


def _product(pairs: _Pairs) -> float:
    with values():
        return sum(numbers([torch.dot(*pair) for pair in (*pairs.large, *pairs.small)]), 0.0)


def product_of(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor]) -> float:
    return _product(_pairs(gradient, ahead))


def sizes(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor], leaves: Sequence[Tensor]) -> Sizes:
    with values():
        moved = [_size(each, v) for each, v in zip(gradient, ahead, strict=True) if each is not None]
        here = [_size(each, x, is_finite=True) for each, x in zip(gradient, leaves, strict=False) if each is not None]
        return Sizes(hypot(*numbers(moved)), hypot(*numbers(here)))


def _size(each: Tensor, other: Tensor, is_finite: bool = False) -> Tensor:
    """Of the terms of a product, those that are not finite left out if all are to be; large ones as they are."""
    each = _dense(each)
    terms = (each if each.numel() > SMALL and each.dtype == torch.float32 else each.double()) * other
    if is_finite:
        terms = terms.nan_to_num_(0, 0, 0)
    return torch.linalg.vector_norm(terms, dtype=torch.float64)
