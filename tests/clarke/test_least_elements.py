"""Least elements of random convex functions, against the exact sets: no vertex lies on the near side of them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor

import subgrad
from clarke.germs import Cell, Germ, pieces

ROUNDING = 1e-9


class Convex:
    """Absolute values, hinges and a maximum of linear forms with small integers, summed: all tie at 0."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.size = random.randint(1, 4)
        self.folded, self.hinged, self.largest = (
            [[random.randint(-2, 2) for _ in range(self.size)] for _ in range(random.randint(1, 4))] for _ in range(3)
        )
        self.tilt = [random.randint(-2, 2) for _ in range(self.size)]

    def __call__(self, x: Tensor) -> Tensor:
        folded, hinged, largest, tilt = map(x.new_tensor, (self.folded, self.hinged, self.largest, self.tilt))
        return (folded @ x).abs().sum() + torch.relu(hinged @ x).sum() + (largest @ x).max(0).values + tilt @ x

    def exactly(self, cell: Cell, x: list[Germ]) -> Germ:
        def form(line: list[int]) -> Germ:
            return sum((w * each for w, each in zip(line, x, strict=True)), 0 * x[0])

        terms = [cell.bent(form(line), -1, 1) for line in self.folded]
        terms += [cell.bent(form(line), 0, 1) for line in self.hinged]
        return sum(terms, cell.largest([form(line) for line in self.largest]) + form(self.tilt))

    def vertices(self) -> np.ndarray:
        return np.array([[float(each) for each in vertex] for vertex in pieces(self.exactly, [0] * self.size)])


def distance_to_hull(point: np.ndarray, vertices: np.ndarray) -> float:
    optimize = pytest.importorskip("scipy.optimize")
    weighed = np.vstack((vertices.T, np.ones(len(vertices))))
    return float(optimize.nnls(weighed, np.append(point, 1.0))[1])


@pytest.mark.parametrize("seed", range(40))
def test_the_least_element_of_a_convex_function_is_the_nearest_of_its_set(seed: int) -> None:
    function = Convex(seed)
    vertices = function.vertices()
    found = subgrad.min_norm(function)(torch.zeros(function.size, dtype=torch.float64))
    least = found.element.numpy()
    assert found.convex
    assert distance_to_hull(least, vertices) < ROUNDING
    assert (vertices @ least).min() > least @ least - ROUNDING  # none is nearer to 0 than the plane through it
    assert found.norm == pytest.approx(np.linalg.norm(least))


@pytest.mark.parametrize("seed", range(10))
def test_that_of_a_concave_one_lies_in_its_set_and_is_not_called_more(seed: int) -> None:
    function = Convex(seed)
    vertices = -function.vertices()
    found = subgrad.min_norm(lambda x: -function(x))(torch.zeros(function.size, dtype=torch.float64))
    assert distance_to_hull(found.element.numpy(), vertices) < ROUNDING
    assert found.convex == (len(vertices) == 1)


@pytest.mark.parametrize("seed", range(10))
def test_directional_derivatives_are_the_largest_products(seed: int) -> None:
    function = Convex(seed)
    vertices = torch.tensor(function.vertices())
    for direction in torch.randint(-2, 3, (6, function.size), generator=torch.Generator().manual_seed(seed)).double():
        _, derivative = subgrad.jvp(function, (torch.zeros_like(direction),), (direction,))
        assert derivative == (vertices @ direction).max()
