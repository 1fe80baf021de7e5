"""The order and the side of an infinite slope, from values of the function alone."""

from __future__ import annotations

import math
import re
from statistics import median

import torch
from torch import Tensor

from subgrad.kinks.expressions import number
from subgrad.kinks.sets import Pole
from subgrad.survey.joint import JointCall

FAR, NEAR = 2.0**-10, 2.0**-18  # how far from the place slopes are measured
STEP = 2.0**-6  # of that distance: the differences taken there
DRAWS = 9
ROUGHLY = 0.15  # a logarithm beside a power counts for so much
GROWS = 1.2  # a logarithm grows by more from one distance to the other


def order(row: JointCall, side: int) -> float | None:
    """How fast slopes grow towards the place: s for slopes like the distance to the power of -s, 0 for a logarithm.

    None where the function has no values on that side of the place, or slopes that do not grow.
    """
    generator = torch.Generator().manual_seed(0)
    found = [_order(row, _move(row, side, generator)) for _ in range(DRAWS)]
    known = [each for each in found if each is not None]
    return median(known) if len(known) > DRAWS / 2 else None


def _order(row: JointCall, move: list[Tensor]) -> float | None:
    far, near = (_slope(row, move, distance) for distance in (FAR, NEAR))
    if not (math.isfinite(far) and math.isfinite(near)) or near <= GROWS * far:
        return None
    return math.log(near / far) / math.log(FAR / NEAR)


def _move(row: JointCall, side: int, generator: torch.Generator) -> list[Tensor]:
    """A direction in which the first entry of the argument that the place speaks of moves to one side of it."""
    moves = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in row.inputs]
    first = re.search("|".join(rf"\b{name}\b" for name in row.names), row.kink.at)
    assert first is not None
    entries = moves[row.names.index(first[0])].view(-1)
    entries[0] = side * (1 + entries[0].abs())
    return moves


def _slope(row: JointCall, move: list[Tensor], distance: float) -> float:
    """The largest difference quotient in any single entry, at a distance from the place."""
    point = [each + distance * towards for each, towards in zip(row.inputs, move, strict=True)]
    quotients = []
    for position, tensor in enumerate(point):
        for entry in range(tensor.numel()):
            sides = []
            for sign in (1, -1):
                moved = [each.clone() for each in point]
                moved[position].view(-1)[entry] += sign * STEP * distance
                sides.append(row.function(*moved))
            quotients.append(float((sides[0] - sides[1]).abs()) / (2 * STEP * distance))
    return max(quotients, default=math.nan) if all(map(math.isfinite, quotients)) else math.nan


def check(row: JointCall) -> None:
    """Fail unless slopes grow as the row says, on the sides where it says so, and there are no values elsewhere."""
    assert isinstance(row.kink.set, Pole)
    stated = number(row.kink.set.order, row.call)
    stated = float(stated.flatten()[0]) if isinstance(stated, Tensor) else float(stated)
    for side, name in ((1, "above"), (-1, "below")):
        found = order(row, side)
        if row.kink.set.side not in (name, "both"):
            assert found is None, f"slopes grow {name} it too"
            continue
        assert found is not None, f"slopes do not grow {name} it"
        assert abs(found - stated) < ROUGHLY, f"slopes of order {found:.2f} {name} it, not {stated}"
