"""Kinks on a line along one entry of the inputs, to the floating-point number.

The slope along the line is autograd's, which rounds little however near to a kink; it differs on both sides of a kink
at any distance, where that of a smooth function comes together. So an interval at whose ends it differs is halved, in
floating-point numbers, until nothing lies between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import torch
from torch import Tensor

from subgrad.audit.counting import INTEGERS
from subgrad.testing.program import Program

PARTS = 8  # of a line, each of which may hold a kink
WIDE = 1e-3  # from here on numbers are counted, lest halving goes on for long beside zero
ENOUGH, LEFT = 5, 0.2  # after so many halvings a smooth function has less than this share of the change left
STEEPEST = 1e-3  # change of the slope, relative to the largest, that is taken for that of a smooth function


@dataclass(frozen=True)
class Bracket:
    """Two neighbouring floating-point numbers of one entry, with a kink between them or on one of them.

    Attributes:
        entry: of the inputs.
        below, above: the numbers.
        left, right: the slopes there, of the entries of the result weighed by a cotangent.
    """

    entry: int
    below: float
    above: float
    left: float
    right: float


class Line:
    """The inputs with one entry that moves."""

    def __init__(self, program: Program, start: Tensor, entry: int, cotangent: Tensor):
        self.program, self.start, self.entry, self.cotangent = program, start, entry, cotangent
        self.dtype = program.inputs.dtype_of(entry)
        self.slopes: dict[float, float] = {}

    def at(self, number: float) -> Tensor:
        vector = self.start.clone()
        vector[self.entry] = number
        return vector

    def slope(self, number: float) -> float:
        if number not in self.slopes:
            gradient = self.program.run(self.at(number)).pulled(self.cotangent)
            self.slopes[number] = float(gradient[self.entry])
        return self.slopes[number]

    def kinks(self, low: float, high: float, also: Iterable[float] = ()) -> list[Bracket]:
        """Those between two numbers, one at most in each part; ``also`` are numbers at which parts end."""
        ends = [low + (high - low) * part / PARTS for part in range(PARTS + 1)]
        ends = [self.rounded(each) for each in (*ends, *(each for each in also if low < each < high))]
        ends = sorted(set(ends))
        found = [self.halved(one, other) for one, other in pairwise(ends)]
        brackets = [each for each in found if each is not None]
        return [each for k, each in enumerate(brackets) if not k or brackets[k - 1].above < each.below]

    def halved(self, low: float, high: float) -> Bracket | None:
        """The kink between two numbers, if the slope differs across it."""
        first, halvings = abs(self.slope(low) - self.slope(high)), 0
        while self.differs(low, high):
            if halvings == ENOUGH and abs(self.slope(low) - self.slope(high)) < LEFT * first:
                return None
            middle = self.between(low, high)
            if middle is None:
                return Bracket(self.entry, low, high, self.slope(low), self.slope(high))
            changes = [abs(self.slope(middle) - self.slope(end)) for end in (low, high)]
            low, high = (low, middle) if changes[0] > changes[1] else (middle, high)
            halvings += 1
        return None

    def differs(self, low: float, high: float) -> bool:
        one, other = self.slope(low), self.slope(high)
        largest = max(abs(each) for each in self.slopes.values() if isfinite(each)) if isfinite(one) else 0.0
        return isfinite(one) and isfinite(other) and abs(one - other) > STEEPEST * largest

    def rounded(self, number: float) -> float:
        return float(torch.tensor(number, dtype=torch.float64).to(self.dtype))

    def between(self, low: float, high: float) -> float | None:
        """A number between two; once they are near, in the middle of those that the dtype has. None: there is none."""
        middle = self.rounded((low + high) / 2)
        if high - low > WIDE and low < middle < high:
            return middle
        ranks = [self.rank(each) for each in (low, high)]
        return None if ranks[1] - ranks[0] < 2 else self.of_rank((ranks[0] + ranks[1]) // 2)

    def rank(self, number: float) -> int:
        """The place of a number among all that the dtype has, in their order."""
        kind = INTEGERS[torch.finfo(self.dtype).bits // 8]
        bits = int(torch.tensor(number, dtype=self.dtype).view(kind))
        return bits if bits >= 0 else torch.iinfo(kind).min - bits

    def of_rank(self, rank: int) -> float:
        kind = INTEGERS[torch.finfo(self.dtype).bits // 8]
        bits = rank if rank >= 0 else torch.iinfo(kind).min - rank
        return float(torch.tensor(bits, dtype=kind).view(self.dtype))
