"""The worked examples of Khan and Barton, "Evaluating an element of the Clarke generalized Jacobian of a composite
piecewise differentiable function", ACM TOMS 39(4), 2013, section 6.

The article itself was not at hand. Functions, data and elements are taken from the tests of the first author's package
NonsmoothFwdAD.jl (github.com/kamilkhanlab/nonsmooth-forward-ad, test/test.jl and test/runtests.jl), which names the
examples it replicates:

- 6.1, 6.2 and 6.3: functions, points and elements; 6.1's second function is printed there without its element.
- 6.5, heat integration: the program, and the streams of the article's Table V. Its element is printed when that script
  runs and stands nowhere in it. Here it is derived: the exact set has one element, which any right answer must be.
- 6.4 is not among them, and was found in no other source: there is no test of it.

The sets are computed here, exactly.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

import subgrad
from clarke.germs import Cell, Germ, in_hull, lexicographic_element, pieces, value_of

SEEDS = range(10)
IDENTITY = [(1, 0), (0, 1)]


def zeros(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.float64)


@pytest.mark.parametrize("seed", SEEDS)
def test_6_1_the_difference_of_two_absolute_values(seed: int) -> None:
    assert subgrad.grad(lambda x: (x.abs() - x.abs()).sum(), seed=seed)(zeros(1)).tolist() == [0.0]


def test_6_1_the_absolute_value_as_a_difference_of_max_and_min() -> None:
    def function(x: Tensor) -> Tensor:
        return (torch.maximum(x, zeros(1)) - torch.minimum(x, zeros(1))).sum()

    found = {subgrad.grad(function, seed=seed)(zeros(1)).item() for seed in SEEDS}
    assert found == {-1.0, 1.0}
    assert torch.func.grad(function)(zeros(1)).tolist() == [0.0]


def six_two(x: Tensor) -> Tensor:
    return torch.maximum(torch.minimum(x[0], -x[1]), x[1] - x[0])


def six_two_exactly(cell: Cell, x: list[Germ]) -> Germ:
    return cell.larger(cell.smaller(x[0], -x[1]), x[1] - x[0])


def test_6_2_max_of_min() -> None:
    vertices = pieces(six_two_exactly, [0, 0])
    assert set(vertices) == {(1, 0), (0, -1), (-1, 1)}
    assert lexicographic_element(six_two_exactly, [0, 0], IDENTITY) == (0, -1)  # runtests.jl
    assert in_hull((Fraction(-1, 2), Fraction(1, 2)), vertices)  # its compass difference
    found = {tuple(subgrad.grad(six_two, seed=seed)(zeros(2)).tolist()) for seed in range(40)}
    assert found == set(vertices)


def test_6_2_directional_derivatives() -> None:
    for direction in ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (1.0, 1.0), (2.0, -1.0)):
        along = torch.tensor(direction, dtype=torch.float64)
        value, derivative = subgrad.jvp(six_two, (zeros(2),), (along,))
        assert (value.item(), derivative.item()) == (0.0, six_two(along).item())  # it is positively homogeneous


@pytest.mark.parametrize("seed", SEEDS)
def test_6_3_a_product_that_is_differentiable_at_its_kink(seed: int) -> None:
    def function(x: Tensor) -> Tensor:
        return (1.0 + (x[0] - x[1]).abs()) * (x[0] - x[1])

    assert subgrad.grad(function, seed=seed)(zeros(2)).tolist() == [1.0, -1.0]
    _, derivative = subgrad.jvp(function, (zeros(2),), (torch.tensor([1.0, -1.0], dtype=torch.float64),))
    assert derivative.item() == 2.0


# 6.5: heat integration. The least heating and cooling of four streams, by their inlet and outlet temperatures in turn,
# after Duran and Grossmann. Hot streams are shifted by the least approach: 160 and 116 then tie with cold ones.
TEMPERATURES = (160, 93, 170, 126, 60, 160, 116, 260)
CAPACITIES = (8.79, 10.55, 7.62, 6.08)
APPROACH = 10


def utilities(t: Tensor) -> tuple[Tensor, Tensor]:
    """The least heating and cooling, written as the example is: with a branch, loops and max(0, .)."""
    inlets, outlets = list(t[::2]), list(t[1::2])
    for j in range(4):
        if outlets[j] < inlets[j]:
            inlets[j], outlets[j] = inlets[j] - APPROACH, outlets[j] - APPROACH
    zero = t.new_zeros(())
    heating = zero
    for pinch in inlets:
        deficit = zero
        for capacity, inlet, outlet in zip(CAPACITIES, inlets, outlets, strict=True):
            deficit = deficit + capacity * (torch.maximum(zero, outlet - pinch) - torch.maximum(zero, inlet - pinch))
        heating = torch.maximum(heating, deficit)
    surplus = sum(capacity * (a - b) for capacity, a, b in zip(CAPACITIES, inlets, outlets, strict=True))
    return heating, heating + surplus


def heating_exactly(cell: Cell, t: list[Germ]) -> Germ:
    inlets, outlets = t[::2], t[1::2]
    shifts = [APPROACH if cell.sign(b - a) < 0 else 0 for a, b in zip(inlets, outlets, strict=True)]
    inlets, outlets = ([a - shift for a, shift in zip(each, shifts, strict=True)] for each in (inlets, outlets))
    capacities = [Fraction(str(each)) for each in CAPACITIES]

    def deficit(pinch: Germ) -> Germ:
        needs = (cell.bent(b - pinch, 0, 1) - cell.bent(a - pinch, 0, 1) for a, b in zip(inlets, outlets, strict=True))
        return sum((capacity * need for capacity, need in zip(capacities, needs, strict=True)), 0 * pinch)

    return cell.largest([0 * t[0], *map(deficit, inlets)])


HEATING = (-3.15, 0.0, -10.55, 0.0, 0.0, 7.62, 0.0, 6.08)
COOLING = (5.64, -8.79, 0.0, -10.55, 7.62, 0.0, 6.08, 0.0)


def test_6_5_the_gradients_are_the_only_ones() -> None:
    assert set(pieces(heating_exactly, TEMPERATURES)) == {tuple(Fraction(str(each)) for each in HEATING)}
    assert value_of(heating_exactly, TEMPERATURES) == Fraction("639.5")
    surplus = [sign * capacity for capacity in CAPACITIES for sign in (1, -1)]
    assert [a + b for a, b in zip(HEATING, surplus, strict=True)] == pytest.approx(COOLING)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("which", "wanted", "value"), [(0, HEATING, 639.5), (1, COOLING, 55.11)])
def test_6_5_heat_integration(seed: int, which: int, wanted: tuple[float, ...], value: float) -> None:
    t = torch.tensor(TEMPERATURES, dtype=torch.float64)
    found, element = subgrad.value_and_grad(lambda t: utilities(t)[which], seed=seed)(t)
    assert element.tolist() == pytest.approx(wanted, abs=1e-9)
    assert found.item() == pytest.approx(value)
