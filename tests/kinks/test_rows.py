"""The rows against one-sided differences of the forward function, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from kinks.steepness import check as check_pole
from rows import Spot, spots

from subgrad.kinks import KINKS
from subgrad.kinks.kink import Kink
from subgrad.kinks.overloads import tensor_names
from subgrad.kinks.sets import Ball, Jump, Pole, Slopes, Ties
from subgrad.survey.joint import JointCall

SPOTS = spots()


def check(spot: Spot) -> None:
    """Fail unless the set of the row is what the forward function shows."""
    kind = spot.kink.set
    if isinstance(kind, Slopes):
        check_slopes(spot, kind)
    elif isinstance(kind, Ties):
        check_ties(spot, kind)
    elif isinstance(kind, Ball):
        check_ball(spot, kind)
    elif isinstance(kind, Pole):
        tensors = {name: spot.numbers[name] for name in tensor_names(spot.kink.op)}
        made = {name: torch.tensor([value], dtype=torch.float64) for name, value in tensors.items()}
        check_pole(JointCall(spot.kink, {**spot.numbers, **made}))
    else:
        check_jump(spot)


def check_slopes(spot: Spot, slopes: Slopes) -> None:
    here, place = spot.forward(), spot.numbers["self"]
    left, right = ((spot.forward(self=place + step) - here) / step for step in (-oracle.STEP, oracle.STEP))
    stated = slopes.at(spot.numbers)
    np.testing.assert_allclose([stated.left_slope, stated.right_slope], [left, right], atol=1e-6)


def check_ties(spot: Spot, ties: Ties) -> None:
    def selected(point: oracle.Point) -> set[str]:
        """Who is followed near a point; each nearby gradient must follow exactly one."""
        found = oracle.vertices(spot.forward, point, spot.operands)
        assert set(found.flatten()) <= {0.0, 1.0}
        assert (found.sum(axis=1) == 1).all()
        return {name for name, column in zip(spot.operands, found.T, strict=True) if column.any()}

    assert selected(spot.point()) == set(ties.candidates)
    for name, (lowered, raised) in ties.moved.items():
        assert selected(oracle.moved(spot.point(), name, -1)) == set(lowered), f"{name} lowered"
        assert selected(oracle.moved(spot.point(), name, +1)) == set(raised), f"{name} raised"


def check_ball(spot: Spot, ball: Ball) -> None:
    assert spot.operands == ball.candidates
    found = oracle.vertices(spot.forward, spot.point(), ball.candidates)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-2)
    assert len(found) > 10  # a sphere of directions, not a few corners


def check_jump(spot: Spot) -> None:
    moved = [name for name in tensor_names(spot.kink.op) if isinstance(spot.numbers[name], float)]
    sides = [
        [spot.forward(**{name: spot.numbers[name] + step}) for step in (oracle.STEP, -oracle.STEP)] for name in moved
    ]
    assert any(abs(above - below) > 1e-3 for above, below in sides)


@pytest.mark.parametrize("spot", SPOTS, ids=str)
def test_the_set_is_what_the_forward_function_shows(spot: Spot) -> None:
    check(spot)


def test_every_row_has_a_sample_that_hits_it() -> None:
    assert {spot.kink for spot in spots(random=True)} == {kink for kink in KINKS if kink.op in KINKS.entrywise}


def wrong(op: str, **changes: object) -> list[Spot]:
    """The spots of an operator with a false statement planted in its first row."""
    planted = {kink: replace(kink, **changes) for kink in KINKS.of_overload(op)[:1]}
    return [replace(spot, kink=planted[spot.kink]) for spot in SPOTS if spot.kink in planted]


@pytest.mark.parametrize(
    "planted",
    [
        wrong("relu", set=Slopes(1.0, 0.0)),
        wrong("elu", set=Slopes("alpha", 1.0)),
        wrong("maximum", set=Ties.smallest("self", "other")),
        wrong("clamp.Tensor", set=Ties.smallest("self", "min")),
        wrong("hypot", set=Ball(("self",))),
        wrong("relu", set=Jump()),
    ],
    ids=[
        "sides swapped",
        "scale forgotten",
        "largest for smallest",
        "bound from below for above",
        "half a ball",
        "no jump",
    ],
)
def test_a_planted_wrong_row_is_caught(planted: list[Spot]) -> None:
    caught = 0
    for spot in planted:
        try:
            check(spot)
        except AssertionError:
            caught += 1
    assert caught > 0


def test_a_kink_reads_as_its_row() -> None:
    (kink,) = KINKS["relu"]
    assert kink == Kink("relu", "0", Slopes(0.0, 1.0), "left")
    assert kink.place == "self == 0"
