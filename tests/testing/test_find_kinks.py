"""`find_kinks`: to the floating-point number, each kink once, with operator and line, and none that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fresh import run_fresh
from torch import Tensor

from subgrad.testing import FoundKink, find_kinks


def numbers(found: tuple[FoundKink, ...]) -> list[float]:
    return [float(each.point[0]) for each in found]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kink", [0.3, -0.7, 1 / 3, 0.123456789])
def test_a_kink_is_found_to_the_floating_point_number(kink: float, dtype: torch.dtype) -> None:
    (found,) = find_kinks(lambda x: (x - kink).abs(), (-1, 1), dtype=dtype)
    assert found.is_exact
    assert found.point[0].dtype == dtype
    assert torch.equal(found.point[0], torch.tensor(kink, dtype=dtype))
    assert (found.left, found.right, found.jump) == (-1, 1, 2)


def test_a_kink_between_two_numbers_is_found_beside_it() -> None:
    (found,) = find_kinks(lambda x: (x * x - 2).abs(), (1, 2))  # at the root of 2, which no number is
    root = torch.tensor(2.0, dtype=torch.float64).sqrt()
    assert not found.is_exact
    assert abs(float(found.point[0] - root)) <= 2.3e-16
    assert (found.left, found.right) == pytest.approx((-2 * float(root), 2 * float(root)), rel=1e-3)


def test_both_bounds_of_a_clamp_are_found_with_operator_and_line() -> None:
    found = find_kinks(lambda x: x.clamp(-1, 6), (-10, 10))
    assert sorted(numbers(found)) == [-1, 6]
    for each in found:
        assert each.operator == "clamp"
        assert each.site is not None
        assert each.site.file == __file__
        assert each.site.source == "found = find_kinks(lambda x: x.clamp(-1, 6), (-10, 10))"
        assert str(each).startswith(f"{each.site}: clamp at self == ")


def test_ties_of_two_arguments_are_found_at_simple_numbers() -> None:
    (found,) = find_kinks(torch.maximum, [(-1, 1), (-1, 1)])
    assert (found.operator, found.entry) == ("maximum", "inputs[0]")
    assert [float(each) for each in found.point] == [0, 0]
    assert [float(each) for each in found.direction] == [1, 0]


def test_a_branch_of_the_program_is_a_kink_without_a_row() -> None:
    def f(x: Tensor) -> Tensor:
        return x if float(x.detach()) > 0.1 else 2 * x - 0.1

    (found,) = find_kinks(f, (-1, 1))
    assert abs(numbers((found,))[0] - 0.1) < 1e-15
    assert (found.left, found.right) == (2, 1)


SMOOTH: dict[str, Callable[..., Tensor]] = {
    "sine": lambda x: torch.sin(9 * x),
    "square of a relu": lambda x: torch.relu(x) ** 2,
    "relu(x) - relu(-x)": lambda x: torch.relu(x) - torch.relu(-x),
    "softplus with kinks": lambda x: torch.relu(x) + torch.log1p(torch.exp(-x.abs())),
    "steep": lambda x: torch.sigmoid(50 * x),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_where_a_function_is_smooth_nothing_is_found(name: str) -> None:
    assert find_kinks(SMOOTH[name], (-1, 1)) == ()


def test_the_same_seed_finds_the_same_and_no_more_than_asked_for() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.relu()  # each line is reported once for each kink of its operator
        return y + (x - 0.5).relu()

    first, again = (numbers(find_kinks(f, (-1, 1))) for _ in range(2))
    assert first == again
    assert set(first) == {0, 0.5}
    assert len(find_kinks(f, (-1, 1), most=1)) == 1


def test_kinks_of_vectors_are_found() -> None:
    low, high = torch.full((3,), -1.0), torch.ones(3)
    (found,) = find_kinks(torch.linalg.vector_norm, (low, high))
    assert torch.equal(found.point[0], torch.zeros(3))
    assert (found.left, found.right) == (-1, 1)


@pytest.mark.parametrize("box", [(1, 1), (0, float("inf")), 3, [(0, 1, 2)], [3], (), "ab"])
def test_a_box_that_is_none_is_an_error(box: Any) -> None:
    with pytest.raises(ValueError, match="box"):
        find_kinks(torch.relu, box)


def test_without_hypothesis_the_command_that_brings_it_is_named() -> None:
    program = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import torch, subgrad\n"
        "assert subgrad.testing.gradcheck(torch.relu, torch.zeros(2, dtype=torch.float64))\n"
        "for call in (lambda: subgrad.testing.find_kinks(torch.relu, (-1, 1)), subgrad.testing.tensors):\n"
        "    try:\n"
        "        call()\n"
        "    except ModuleNotFoundError as error:\n"
        "        assert 'which is missing: pip install hypothesis.' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError\n"
    )
    done = run_fresh(program)
    assert done.returncode == 0, done.stderr
