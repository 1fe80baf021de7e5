"""How a call bends near a place, from its values alone: PyTorch's documented rule depends on it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from subgrad.apply.use import use
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import call_by_name
from subgrad.survey.joint import JointCall
from subgrad.survey.measure import Place

PAIRS = 128
NEARBY, CLOSE = 2.0**-8, 2.0**-24  # so far that smooth parts bend, so near that they do not
LEAST_BEND = {NEARBY: 1e-10, CLOSE: 1e-5}  # what rounding leaves, and curvature where it should not count

SMOOTH, CONVEX, CONCAVE, NEITHER = "differentiable", "convex", "concave", "neither"
FIRST_ORDER = " to first order"


def shape(place: Place) -> str:
    """How the affected entry of the result depends on all arguments that the kink speaks of, near the place.

    Returns:
        ``"differentiable"``, ``"convex"``, ``"concave"``, the latter two with ``" to first order"`` where smooth parts
        bend the other way (``elu``), or ``"neither"``.
    """
    function, inputs = _function(place)
    close = _bend(function, inputs, CLOSE)
    if close in (SMOOTH, NEITHER):
        return close
    return close if _bend(function, inputs, NEARBY) == close else close + FIRST_ORDER


def _function(place: Place) -> tuple[Callable[..., Tensor], list[Tensor]]:
    if place.kink.op not in KINKS.entrywise:
        joint = JointCall(place.kink, place.call)
        return joint.function, joint.inputs
    names = [name for name in place.kink.set.candidates if isinstance(place.call[name], Tensor)]

    def function(*inputs: Tensor) -> Tensor:
        return call_by_name(place.kink.op, {**place.call, **dict(zip(names, inputs, strict=True))})

    return function, [place.call[name] for name in names]


@torch.no_grad()
def _bend(function: Callable[..., Tensor], inputs: list[Tensor], step: float) -> str:
    """Compare values in the middle between random points with the mean of the values at both."""
    generator = torch.Generator().manual_seed(0)

    def moves() -> list[Tensor]:
        return [2 * torch.rand(each.shape, generator=generator, dtype=each.dtype) - 1 for each in inputs]

    def quotient(moves: list[Tensor]) -> float:
        moved = [each + step * move for each, move in zip(inputs, moves, strict=True)]
        return float(function(*moved) - here) / step

    gaps = []
    with use("torch"):
        here = function(*inputs)
        for _ in range(PAIRS):
            one, other = moves(), moves()
            middle = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
            gaps.append((quotient(one) + quotient(other)) / 2 - quotient(middle))
    bent_up, bent_down = max(gaps) > LEAST_BEND[step], min(gaps) < -LEAST_BEND[step]
    return NEITHER if bent_up and bent_down else CONVEX if bent_up else CONCAVE if bent_down else SMOOTH
