"""The oracle itself: cones, pieces and directional derivatives, against brute force; wrong elements are caught."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from clarke.cones import Vector, dot, inside
from clarke.germs import Cell, Germ, TooManyPieces, directional_derivative, in_hull, pieces, value_of
from clarke.operations import OPERATIONS
from clarke.random_programs import Program, programs

POINTS = [(0, 0, 0), (1, 0, -2), (7, 1, 1), (-2, -2, 0), (0, 1, 7), (-1, 2, 6)]

quick = settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
vectors = st.tuples(*[st.integers(-3, 3)] * 3).filter(any)


@quick
@given(st.lists(vectors, min_size=1, max_size=7))
def test_cones_are_empty_exactly_where_no_direction_of_a_grid_lies_inside(normals: list[Vector]) -> None:
    # Corners of cells between such normals are cross products of two of them, 18 at most; sums of three lie inside.
    found = inside(normals)
    if found is None:
        grid = product(range(-6, 7), repeat=3)
        assert not any(all(dot(normal, each) > 0 for normal in normals) for each in grid)
    else:
        assert all(dot(normal, found) > 0 for normal in normals)


def relu(cell: Cell, x: Germ) -> Germ:
    return cell.bent(x, 0, 1)


@pytest.mark.parametrize(
    ("function", "point", "gradients"),
    [
        (lambda cell, x: relu(cell, x[0]) - relu(cell, -x[0]), [0], {(1,)}),
        (lambda cell, x: relu(cell, x[0]) + relu(cell, -x[0]), [0], {(1,), (-1,)}),
        (lambda cell, x: relu(cell, relu(cell, x[0]) - 2 * relu(cell, -x[0])), [0], {(0,), (1,)}),
        (lambda cell, x: cell.larger(x[0], x[0]), [3], {(1,)}),
        (lambda cell, x: cell.sorted(x)[1], [0, 0, 0], {(1, 0, 0), (0, 1, 0), (0, 0, 1)}),
        (lambda cell, x: cell.clamped(x[0], 1, 1), [1], {(0,)}),
        (
            lambda cell, x: relu(cell, x[0] + x[1]) - relu(cell, x[0]) - relu(cell, x[1]),
            [0, 0],
            {(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1)},
        ),
    ],
)
def test_pieces_of_functions_known_by_hand(function, point, gradients) -> None:
    assert set(pieces(function, point)) == gradients


def exact_pieces(program: Program, most: int = 300) -> dict:
    try:
        return pieces(program, program.point, most)
    except TooManyPieces:
        assume(False)
        raise


@quick
@given(programs(deepest=6, curved=False), st.data())
def test_gradients_close_by_are_those_of_pieces_and_every_piece_is_met(program: Program, data: st.DataObject) -> None:
    found = exact_pieces(program)
    value = value_of(program, program.point)
    for gradient, direction in found.items():  # f is linear along the direction of each piece, for short steps
        step = Fraction(1, 10**6 * (1 + sum(map(abs, direction or ()))))
        nearby = [at + step * by for at, by in zip(program.point, direction or [0] * len(program.point), strict=True)]
        assert value_of(program, nearby) == value + step * dot(gradient, direction or [0] * len(program.point))
    direction = data.draw(st.tuples(*[st.integers(-999, 999)] * len(program.point)))
    nearby = [at + Fraction(by, 10**9) for at, by in zip(program.point, direction, strict=True)]
    assert set(pieces(program, nearby)) <= set(found)


@quick
@given(programs(deepest=6, curved=False), st.data())
def test_directional_derivatives_are_differences(program: Program, data: st.DataObject) -> None:
    direction = data.draw(st.tuples(*[st.integers(-2, 2)] * len(program.point)))
    step = Fraction(1, 10**9)
    ahead = value_of(program, [at + step * by for at, by in zip(program.point, direction, strict=True)])
    derivative = directional_derivative(program, program.point, direction)
    assert derivative == (ahead - value_of(program, program.point)) / step


def test_hulls_know_their_members() -> None:
    square = [(0, 0), (0, 2), (2, 0), (2, 2)]
    assert in_hull((1, 1), square)
    assert in_hull((0, Fraction(1, 3)), square)
    assert in_hull((2, 2), square)
    assert not in_hull((0, Fraction(-1, 10**30)), square)
    assert not in_hull((3, 1), square)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_spelling_computes_what_its_operation_is(name: str) -> None:
    operation = OPERATIONS[name]
    given_to = {"a": Fraction(-1, 2), "c": 1, "p": -2, "q": 1, "low": -1, "high": 2, "k": 2, "t": [1, -1, 2]}
    given_to |= {"W": [[1, 0, -1], [2, 1, 0], [0, -1, 1]], "b": [1, 0, -1]}
    given = {each: given_to[each] for each in operation.parameters}
    for _, code in operation.ways:
        for point in POINTS:
            x, z, u = (torch.tensor(point, dtype=torch.float64).roll(by) for by in range(3))
            written = {
                each: float(value) if isinstance(value, int | Fraction) and each != "k" else value
                for each, value in given.items()
            }
            scope = {"torch": torch, "F": F, "inf": float("inf"), "x": x, "z": z, "u": u}
            exec(code.format(y="y", x="x", z="z", u="u", **{k: f"({v})" for k, v in written.items()}), scope)
            germs = [[Germ(Fraction(each), ()) for each in vector.tolist()] for vector in (x, z, u)]
            wanted = operation.exact(Cell(), given, *germs[: operation.arity])
            assert scope["y"].tolist() == [each.value for each in wanted], code


def test_wrong_elements_are_caught() -> None:
    x = torch.zeros(1, dtype=torch.float64)
    wrong = torch.func.grad(lambda x: (F.relu(x) - F.relu(-x)).sum())(x)
    right = pieces(lambda cell, x: relu(cell, x[0]) - relu(cell, -x[0]), [0])
    assert wrong.tolist() == [0.0]
    assert not in_hull(tuple(map(Fraction, wrong.tolist())), right)
