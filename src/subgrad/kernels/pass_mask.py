"""Where entries either pass or do not: who passes, as comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from subgrad.apply.plan import Plan
from subgrad.kernels.piecewise import ONE, ZERO, Coding

# By whether an entry on the kink, and one above it, pass (an entry below does the opposite of the latter).
_PASSES: dict[tuple[bool, bool], Callable[..., Tensor]] = {
    (False, True): torch.gt,
    (True, True): torch.ge,
    (False, False): torch.lt,
    (True, False): torch.le,
}
_IS_BLOCKED: dict[tuple[bool, bool], Callable[..., Tensor]] = {
    (False, True): torch.le,
    (True, True): torch.lt,
    (False, False): torch.ge,
    (True, False): torch.gt,
}


@dataclass(frozen=True)
class Mask:
    """Which entries pass, as comparisons with one or two places."""

    passes: tuple[bool, ...]  # below, on the lower kink, between, on the upper kink, above, nan

    @classmethod
    def of(cls, coding: Coding, plan: Plan) -> Mask | None:
        """None where weights other than exactly 0 and 1 occur, for two operands, or for a place that is rounded."""
        if not all(meeting.is_exact for meeting in plan.meetings):
            return None
        weights = [coding.weights[0][code] for code in coding.regions]
        if len(coding.weights) != 1 or any(weight.kind not in (ZERO, ONE) for weight in weights):
            return None
        passes = tuple(weight.kind == ONE for weight in weights)
        sides = passes[:1] + passes[2:3] + (passes[4:5] if coding.corners == 2 else ())
        return cls(passes) if all(one != other for one, other in pairwise(sides)) else None

    @property
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
        table = _IS_BLOCKED if nan else _PASSES
        mask = table[on_low, between](x, low, out=out)
        if between == above:  # there is one corner
            return mask
        # Between two corners both must hold for the narrower side, either for the wider one.
        both = between != nan
        other = table[on_high, above](x, high, out=None if out is None else torch.empty_like(out))
        if out is None:
            return torch.logical_and(mask, other) if both else torch.logical_or(mask, other)
        # The same for ones and zeros, and vectorised.
        return torch.minimum(mask, other, out=out) if both else torch.maximum(mask, other, out=out)
