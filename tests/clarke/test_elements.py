"""Random programs at points on their kinks: the element is the gradient of a piece around the point, exactly.

Fewer of the same programs than `scripts/clarke.py` runs; see docs/clarke-evidence.md for all.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from clarke.germs import TooManyPieces, pieces
from clarke.operations import OPERATIONS
from clarke.random_programs import Program, Step, programs
from clarke.verdicts import examine

PROGRAMS = 150

SAMPLE = {"a": -0.5, "c": 0, "p": -2, "q": 1, "low": 0, "high": 2, "k": 2, "t": [1, -1, 2]}
SAMPLE |= {"W": [[1, 0, -1], [2, 1, 0], [0, -1, 1]], "b": [0, 0, 0]}
WAYS = [(name, way) for name, operation in OPERATIONS.items() for way in range(len(operation.ways))]


def on_a_kink(name: str, way: int) -> Program:
    """One operation at a point where everything ties; the point itself is added, so that nothing is constant."""
    operation = OPERATIONS[name]
    mixed = Step("affine", 0, (0,), (("W", SAMPLE["W"]), ("b", [0, 0, 0])))
    step = Step(name, way, (1, 0, 1)[: operation.arity], tuple((each, SAMPLE[each]) for each in operation.parameters))
    width = 1 if name in ONE_ENTRY else 2 if name == "pool" else 3
    return Program((0, 0, 0), (mixed, step), ((0, (1, 2, -1)), (2, (2, -1, 1)[:width])))


ONE_ENTRY = ("largest", "least", "median", "taxicab", "largest_size", "positive_part", "hinges")


@pytest.mark.parametrize(("name", "way"), WAYS, ids=[f"{name}-{way}" for name, way in WAYS])
def test_every_spelling_gives_the_gradient_of_a_piece(name: str, way: int) -> None:
    program = on_a_kink(name, way)
    verdict = examine(program, way, (1, -1, 0))
    assert not verdict.outcome.is_miss, f"{verdict.outcome.value}: {verdict.said}\n{program}"


@settings(
    max_examples=PROGRAMS, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(programs(), st.integers(0, 99), st.data())
def test_random_programs_give_the_gradient_of_a_piece(program: Program, seed: int, data: st.DataObject) -> None:
    direction = data.draw(st.tuples(*[st.integers(-2, 2)] * len(program.point)))
    try:
        verdict = examine(program, seed, direction)
    except TooManyPieces:
        assume(False)
        raise
    assert not verdict.outcome.is_miss, f"{verdict.outcome.value}: {verdict.said}\n{program}"


def test_torch_gives_none_for_some_of_them() -> None:
    doubled = Program(
        (0,),
        (Step("relu", 0, (0,)), Step("affine", 0, (0,), (("W", [[-1]]), ("b", [0]))), Step("relu", 0, (2,))),
        ((1, (1,)), (3, (-1,))),
    )
    assert set(pieces(doubled, (0,))) == {(1,)}
    assert torch.func.grad(doubled.compiled())(doubled.tensor()).tolist() == [0.0]
