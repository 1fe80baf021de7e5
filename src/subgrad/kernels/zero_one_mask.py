"""Elements that are 0 or 1: entries let the cotangent pass, or do not, and comparisons say which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isnan
from typing import NamedTuple

import torch
from torch import Tensor

from subgrad.apply.call import Call
from subgrad.apply.plan import Plan
from subgrad.kernels.piecewise import ONE, STRAIGHT, ZERO, Coding, Straight, coding_of, only_given, rows_between

# By whether an entry on the kink, and one above it, pass, or are blocked (one below does the opposite of the latter).
_PASSES: dict[tuple[bool, bool], Callable[..., Tensor]] = {
    (False, True): torch.gt,
    (True, True): torch.ge,
    (False, False): torch.lt,
    (True, False): torch.le,
}


@dataclass(frozen=True)
class ZeroOneMask:
    """Which entries pass, as comparisons with one or two places."""

    passes: tuple[bool, ...]  # below, on the lower kink, between, on the upper kink, above, nan

    @classmethod
    def of(cls, coding: Coding, plan: Plan) -> ZeroOneMask | None:
        """None where weights other than exactly 0 and 1 occur, for two operands, or for a place that is rounded."""
        if not all(meeting.is_exact for meeting in plan.meetings):
            return None
        weights = [coding.weights[0][code] for code in coding.regions]
        if len(coding.weights) != 1 or any(weight.kind not in (ZERO, ONE) for weight in weights):
            return None
        passes = tuple(weight.kind == ONE for weight in weights)
        sides = passes[:1] + passes[2:3] + (passes[4:5] if coding.corners == 2 else ())
        return cls(passes) if all(one != other for one, other in pairwise(sides)) else None

    @cached_property
    def says_who_is_blocked(self) -> bool:
        """A comparison with nan is false: so comparisons say who passes, or who does not, according to nan."""
        return self.passes[-1]

    @cached_property
    def passes_what_stays(self) -> bool:
        """Of a clamp, whether those entries pass that it leaves as they are: one comparison, with its value."""
        _, on_low, between, on_high, _, nan = self.passes
        return on_low and on_high == between and not nan

    def compare(self, x: Tensor, low: Tensor | float, high: float, out: Tensor | None = None) -> Tensor:
        """Who passes, or who does not; as ones and zeros where that is written into numbers."""
        _, on_low, between, on_high, above, nan = self.passes
        mask = _PASSES[on_low != nan, between != nan](x, low, out=out)
        if between == above:  # there is one corner
            return mask
        # Between two corners both must hold for the narrower side, either for the wider one.
        both = between != nan
        other = _PASSES[on_high != nan, above != nan](x, high, out=None if out is None else torch.empty_like(out))
        if out is None:
            return torch.logical_and(mask, other) if both else torch.logical_or(mask, other)
        # The same for ones and zeros, and vectorised.
        return torch.minimum(mask, other, out=out) if both else torch.maximum(mask, other, out=out)


class Masked(NamedTuple):
    """A call of which entries pass or do not.

    Attributes:
        row: of its operator.
        second: the name of the tensor with which entries are compared; empty if they are compared with numbers.
        corners: how many of those there are, one or two.
        low, high: them.
    """

    mask: ZeroOneMask
    row: Straight
    second: str
    corners: int
    low: float
    high: float


def masked(plan: Plan, call: Call) -> Masked | None:
    """None for a call with other elements, with two operands that are differentiated, or with numbers yet unknown."""
    rows = rows_between(call.op.op)
    second = only_given(rows, call.arguments) if rows else ""
    if plan.names != {"self"} or not plan.meetings or second is None or not (second or call.op.op in STRAIGHT):
        return None
    row = rows[second] if second else STRAIGHT[call.op.op]
    low, high, _ = row.numbers(call.arguments)
    if not all(isinstance(each, int | float) and not isnan(each) for each in (low, high)):  # symbols
        return None
    coding = coding_of(row, plan, call.arguments, ("self",))
    mask = None if coding is None else ZeroOneMask.of(coding, plan)
    if coding is None or mask is None:
        return None
    return Masked(mask, row, second, coding.corners, low, high)
