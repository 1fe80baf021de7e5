"""Bags, segments and what is scattered: elements and slopes against values and gradients a little further on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.survey.sampled_gradients import gradients_nearby, least

FURTHER = 1e-6
INDEX = torch.tensor
TABLE = torch.tensor([[0.5, 1.0], [0.5, 2.0], [-1.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
LINE = torch.tensor([2.0, 0.0, 2.0, 0.0, -1.0, 2.0], dtype=torch.float64)
PLANE = torch.stack([LINE, LINE.flip(0), LINE - 1])
Function = Callable[[Tensor], Tensor]

BAGS: dict[str, Function] = {
    "the second bag is empty": partial(F.embedding_bag, INDEX([0, 1]), offsets=INDEX([0, 2])),
    "the first bag is empty": partial(F.embedding_bag, INDEX([0, 1]), offsets=INDEX([0, 0])),
    "all bags are empty": partial(F.embedding_bag, INDEX([], dtype=torch.long), offsets=INDEX([0, 0, 0])),
    "padding": partial(F.embedding_bag, INDEX([0, 1, 2, 2]), offsets=INDEX([0, 3]), padding_idx=1),
    "a bag of padding": partial(F.embedding_bag, INDEX([1, 1, 0, 1]), offsets=INDEX([0, 2]), padding_idx=1),
    "the last offset": partial(
        F.embedding_bag, INDEX([0, 1, 2]), offsets=INDEX([0, 2, 2, 3]), include_last_offset=True
    ),
    "a matrix of indices": partial(F.embedding_bag, INDEX([[0, 1, 1], [2, 1, 3]])),
    "int32": partial(F.embedding_bag, INDEX([0, 1, 3], dtype=torch.int32), offsets=INDEX([0, 2, 2], dtype=torch.int32)),
}
REDUCTIONS = ("max", "min", "sum", "mean", "prod")
SEGMENTS: dict[str, tuple[Tensor, dict]] = {
    "lengths": (LINE, {"lengths": INDEX([3, 3])}),
    "an empty segment, with a start": (LINE, {"lengths": INDEX([3, 0, 3]), "initial": 2.0}),
    "offsets": (LINE, {"offsets": INDEX([0, 2, 6])}),
    "offsets that leave entries out": (LINE, {"offsets": INDEX([1, 3, 4])}),
    "lengths that leave entries out": (LINE, {"lengths": INDEX([1, 3]), "unsafe": True}),
    "axis -1 of a line": (LINE, {"lengths": INDEX([6]), "axis": -1}),
    "axis -1": (PLANE, {"lengths": INDEX([[3, 3], [1, 5], [2, 4]]), "axis": -1}),
    "axis 1, offsets": (PLANE, {"offsets": INDEX([[0, 3, 6], [0, 1, 6], [1, 3, 5]]), "axis": 1}),
    "axis -2": (PLANE, {"lengths": INDEX([2, 1]), "axis": -2}),
    "axis 1 of 3": (PLANE.reshape(3, 3, 2), {"lengths": INDEX([[3, 0], [1, 2], [2, 1]]), "axis": 1, "initial": 0.0}),
}


def weighed(f: Function) -> Function:
    """Cotangents that are not constant, of both signs."""

    def sum_of(x: Tensor) -> Tensor:
        out = f(x).flatten()
        return sum(((-1) ** n * (1 + n % 3) * each for n, each in enumerate(out.unbind())), x.sum() * 0)

    return sum_of


def check(f: Function, x: Tensor) -> None:
    """The element is the gradient a little further on, and its slope that of the values."""
    for seed in range(3):
        found = subgrad.element(f, seed=seed)(x)
        further = x + FURTHER * found.direction
        torch.testing.assert_close(found.gradient, torch.func.grad(f)(further), atol=1e-4, rtol=1e-4)
        assert found.slope == pytest.approx(float((f(further) - f(x)) / FURTHER), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("mode", ["max", "sum", "mean"])
@pytest.mark.parametrize("name", BAGS)
def test_bags_move_as_their_values_do(name: str, mode: str) -> None:
    check(weighed(lambda table: BAGS[name](weight=table, mode=mode)), TABLE)


def test_an_empty_bag_is_constant() -> None:
    weights = torch.tensor([[1.0], [5.0]], dtype=torch.float64)

    def f(table: Tensor) -> Tensor:
        return (F.embedding_bag(INDEX([0, 1]), table, INDEX([0, 2]), mode="max") * weights).sum()

    for tol in (0.0, 1e-9):  # with which the rule is not held against values
        found = subgrad.elements(f, tol=tol)(torch.zeros(2, 1).double())
        assert {tuple(each.gradient.flatten().tolist()) for each in found} == {(1.0, 0.0), (0.0, 1.0)}


def test_weights_of_samples_are_differentiated_beside_a_kink() -> None:
    indices, offsets = INDEX([0, 1, 2, 2]), INDEX([0, 3, 3])

    def f(factors: Tensor) -> Tensor:
        bags = F.embedding_bag(indices, TABLE, offsets, mode="sum", per_sample_weights=factors)
        return weighed(lambda _: bags)(factors) + factors.abs().sum()

    check(f, torch.tensor([0.0, 1.0, -2.0, 0.0], dtype=torch.float64))


def test_a_table_and_the_weights_of_its_samples_are_differentiated_together() -> None:
    indices, offsets = INDEX([[0, 1], [2, 2]]), None

    def f(both: tuple[Tensor, Tensor]) -> Tensor:
        table, factors = both
        bags = F.embedding_bag(indices, table, offsets, mode="sum", per_sample_weights=factors)
        return weighed(lambda _: bags)(table).abs() + bags.abs().amax()

    point = TABLE, torch.tensor([[2.0, -2.0], [0.0, 0.0]], dtype=torch.float64)
    found = subgrad.element(f, seed=1)(point)
    further = tuple(x + FURTHER * d for x, d in zip(point, found.direction, strict=True))
    for mine, theirs in zip(found.gradient, torch.func.grad(f)(further), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_move_as_their_values_do(name: str, reduce: str) -> None:
    x, options = SEGMENTS[name]
    check(weighed(lambda data: torch.segment_reduce(data, reduce, **options)), x)


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("name", SEGMENTS)
def test_conventions_share_the_ties_of_segments_along_any_axis(name: str, reduce: str) -> None:
    x, options = SEGMENTS[name]
    wanted, found = [], []
    values = torch.segment_reduce(x, reduce, **options)
    for place in range(values.numel()):  # one by one: the least element of a sum is not the sum of the least
        f: Function = lambda data, place=place: -2.5 * torch.segment_reduce(data, reduce, **options).flatten()[place]  # noqa: E731
        leaf = x.clone().requires_grad_()
        with subgrad.use("min-norm"):
            out = f(leaf)
        assert torch.equal(out, f(x))
        found.append(torch.autograd.grad(out, leaf)[0].flatten())
        wanted.append(least(gradients_nearby(f, [x])))
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted), atol=1e-4, rtol=0)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin", "mean", "prod"])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("method", ["index_reduce", "scatter_reduce"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_what_is_reduced_into_places_moves_as_its_values_do(
    method: str, dim: int, reduce: str, include_self: bool
) -> None:
    index = INDEX([2, 0, 2])
    wide = (index + torch.arange(3).unsqueeze(1)) % 3

    def f(x: Tensor) -> Tensor:
        own, source = x[:9].view(3, 3), x[9:].view(3, 3)
        if method == "index_reduce":
            out = own.index_reduce(dim, index, source, reduce, include_self=include_self)
        else:
            out = own.scatter_reduce(dim, wide, source, reduce, include_self=include_self)
        return weighed(lambda _: out)(x)

    check(f, PLANE.flatten().clone())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_ranks_need_no_precision_of_the_dtype(dtype: torch.dtype) -> None:
    table = torch.zeros(3000, 1, dtype=dtype)  # more entries than 16 bits can number
    bag = torch.arange(3000)

    def f(weight: Tensor) -> Tensor:
        return F.embedding_bag(bag, weight, INDEX([0, 3000]), mode="max").sum()

    found = subgrad.element(f)(table)
    assert found.gradient.flatten().nonzero().flatten().tolist() == [int(found.direction.flatten().argmax())]
