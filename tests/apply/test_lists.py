"""`torch._foreach_*` takes the convention of the operator on one tensor: held against that, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import subgrad

CONVENTIONS = ("min-norm", "documented", "torch-2.13", "torch-2.14", "pass-through", "left", "right", "mean")
POINTS = ([-1.0, 0.0, 2.0, 0.5], [0.0, -0.0, 0.5, -3.0])
OTHERS = ([0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 0.5, 1.0])
COTANGENTS = ([1.5, -2.0, 0.25, 3.0], [-1.0, 0.5, 4.0, -0.75])

One = Callable[[Tensor, int], Tensor]
# What is done with a list, and with one tensor, the index of which is given.
CALLS: dict[str, tuple[Callable[[list[Tensor]], Any], One]] = {
    "abs": (torch._foreach_abs, lambda x, i: x.abs()),
    "clamp_min, a number": (lambda xs: torch._foreach_clamp_min(xs, 0.5), lambda x, i: x.clamp_min(0.5)),
    "clamp_max, numbers": (
        lambda xs: torch._foreach_clamp_max(xs, [0.5, 0.0]),
        lambda x, i: x.clamp_max([0.5, 0.0][i]),
    ),
    "clamp_min, tensors": (lambda xs: torch._foreach_clamp_min(xs, others()), lambda x, i: x.clamp_min(others()[i])),
    "clamp_max, tensors": (lambda xs: torch._foreach_clamp_max(xs, others()), lambda x, i: x.clamp_max(others()[i])),
    "maximum, a number": (lambda xs: torch._foreach_maximum(xs, 0.0), lambda x, i: x.maximum(torch.zeros(4))),
    "minimum, tensors": (lambda xs: torch._foreach_minimum(xs, others()), lambda x, i: x.minimum(others()[i])),
}
WRITTEN: dict[str, tuple[Callable[[list[Tensor]], Any], One]] = {
    "abs_": (torch._foreach_abs_, lambda x, i: x.abs_()),
    "clamp_min_": (lambda xs: torch._foreach_clamp_min_(xs, 0.5), lambda x, i: x.clamp_min_(0.5)),
    "clamp_max_": (lambda xs: torch._foreach_clamp_max_(xs, [0.5, 0.0]), lambda x, i: x.clamp_max_([0.5, 0.0][i])),
    "maximum_": (
        lambda xs: torch._foreach_maximum_(xs, others()),
        lambda x, i: x.copy_(x.clone().maximum(others()[i])),
    ),
}


def others() -> list[Tensor]:
    return [torch.tensor(each) for each in OTHERS]


def points() -> list[Tensor]:
    return [torch.tensor(each, requires_grad=True) for each in POINTS]


def gradients(found: Any, of: list[Tensor]) -> list[list[float]]:
    given = [torch.tensor(each) for each in COTANGENTS]
    return [each.tolist() for each in torch.autograd.grad(list(found), of, given)]


def bits(found: Any) -> list[list[int]]:
    return [each.detach().view(torch.int32).tolist() for each in found]


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("name", CALLS)
def test_a_list_has_the_gradients_of_its_tensors(name: str, convention: str) -> None:
    of_list, of_one = CALLS[name]
    plain = of_list(points())
    with subgrad.use(convention):
        xs, ys = points(), points()
        listed, single = of_list(xs), [of_one(y, i) for i, y in enumerate(ys)]
    assert bits(listed) == bits(plain)
    assert gradients(listed, xs) == gradients(single, ys)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("name", WRITTEN)
def test_so_has_one_that_is_written_into(name: str, convention: str) -> None:
    of_list, of_one = WRITTEN[name]
    plain = [x.clone() for x in points()]
    of_list(plain)
    with subgrad.use(convention):
        xs, ys = points(), points()
        listed, single = [x.clone() for x in xs], [of_one(y.clone(), i) for i, y in enumerate(ys)]
        of_list(listed)
    assert bits(listed) == bits(plain)
    assert gradients(listed, xs) == gradients(single, ys)


def test_a_leaf_cannot_be_written_into_as_in_plain_torch() -> None:
    with subgrad.use("right"), pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        torch._foreach_abs_(points())


def test_transforms_and_compiled_functions_take_the_convention_too() -> None:
    def total(x: Tensor) -> Tensor:
        return (torch._foreach_abs([x, 2 * x])[1] * torch.tensor([1.0, 3.0])).sum()

    x = torch.tensor([0.0, -1.0])
    with subgrad.use("right"):
        assert torch.func.grad(total)(x).tolist() == [2.0, -6.0]
        assert torch.func.jvp(total, (x,), (torch.tensor([1.0, 0.5]),))[1].item() == 2.0 - 3.0
    compiled = torch.compile(total, backend="aot_eager")
    leaf = x.clone().requires_grad_()
    for convention, slope in (("right", 2.0), ("left", -2.0), ("torch", 0.0)):
        with subgrad.use(convention):
            assert torch.autograd.grad(compiled(leaf), leaf)[0].tolist() == [slope, -6.0]


def test_what_is_not_differentiated_is_left_to_torch() -> None:
    with subgrad.use("right"), torch.no_grad():
        found = torch._foreach_abs([*points(), torch.tensor([-1, 2])])
    assert not any(each.requires_grad for each in found)
    with subgrad.use("right"), FakeTensorMode():
        assert torch._foreach_abs([torch.zeros(2, requires_grad=True)])[0].shape == (2,)


def test_only_some_tensors_of_a_list_may_be_differentiated() -> None:
    x, constant = torch.zeros(2, requires_grad=True), torch.tensor([-1.0, 0.0])
    with subgrad.use("right"):
        one, other = torch._foreach_abs([x, constant])
    assert not other.requires_grad
    assert torch.autograd.grad(one, x, torch.tensor([2.0, -3.0]))[0].tolist() == [2.0, -3.0]
