"""Programs that once came out wrong, each the first of a kind: right, or refused with its line.

What is true is said by the values of the program, or by another spelling of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]


def numbers(*given: float) -> Tensor:
    return torch.tensor(given, dtype=torch.float64)


def indices_by_keyword(x: Tensor) -> Tensor:
    i = torch.stack([x[0] ** 2, 2 * x[0] ** 2]).argmax(0, keepdim=True)
    return torch.stack([x.sum(), -x.sum()]).gather(0, index=i).sum()


def loop_that_ends(x: Tensor) -> Tensor:
    r = torch.relu(x - 1)
    while (r > 0).any():
        r = torch.relu(r - 1)
    return (r + x).sum()


def assertion_that_holds(x: Tensor) -> Tensor:
    y = torch.relu(x)
    assert (y >= 0).all()
    return (3 * y - 3 * torch.relu(-x)).sum()


def by_pieces(u: Tensor) -> Tensor:
    """relu(u - 1) on [0, 2), by a table of slopes."""
    i = u.to(torch.long)
    return (u - i) * numbers(0.0, 1.0)[i]


def square(y: Tensor) -> Tensor:
    return ((torch.relu(y) ** 2 + torch.relu(-y) ** 2) / 2).sum()


def through_autograd(x: Tensor) -> Tensor:
    return torch.autograd.grad(square(x), x, create_graph=True)[0].sum()


def wave(x: Tensor) -> Tensor:
    return (torch.remainder(x, 2) - 1).abs()


# Each has one gradient at its point, the last entry.
SMOOTH: dict[str, tuple[Function, Tensor, list[float]]] = {
    "tie in value and tangent": (
        lambda x: torch.where((x * x >= 0) & (x * x > 0), x, -x).sum(), numbers(0.0), [1.0]),
    "nearly the same branches": (lambda x: torch.where(x * x > 0, 1.03 * x, x).sum(), numbers(0.0), [1.03]),
    "one entry of many": (
        lambda x: x.sum() + torch.where(x[0] * x[0] > 0, x[0], -x[0]), torch.zeros(500).double(), [2.0] + [1.0] * 499),
    "an index by keyword": (indices_by_keyword, numbers(0.0, 0.0), [-1.0, -1.0]),
    "a loop that a tie could keep going": (loop_that_ends, numbers(0.0, 0.0), [1.0, 1.0]),
    "an assertion that holds everywhere": (assertion_that_holds, numbers(0.0, -1.0), [3.0, 3.0]),
    "equal": (lambda x: 0 * x.sum() if torch.equal(x, torch.zeros_like(x)) else x.sum(), numbers(0.0), [1.0]),
    "isin": (lambda x: torch.where(torch.isin(x, numbers(0.0)), 0 * x, x).sum(), numbers(0.0), [1.0]),
    "to bool": (lambda x: torch.where(x.to(torch.bool), x, 0 * x).sum(), numbers(0.0), [1.0]),
    "to long": (lambda x: (by_pieces(x) - by_pieces(2 - x)).sum(), numbers(1.0), [1.0]),
    "a branch cut": (
        lambda y: (torch.angle(torch.complex(-torch.ones_like(y), y)) * y - torch.pi * y.abs()).sum(),
        numbers(0.0), [0.0]),
    "ties after a jump": (
        lambda x: (torch.relu(wave(x) - 1 + (x - 2).abs() + (x - 2)) - torch.relu(2 - x)).sum(), numbers(2.0), [1.0]),
    "func.grad": (lambda x: torch.func.grad(square)(x).sum(), numbers(0.0, 0.3), [1.0, 1.0]),
    "func.jvp": (lambda x: torch.func.jvp(square, (x,), (torch.ones_like(x),))[1], numbers(0.0, 0.3), [1.0, 1.0]),
    "func.vjp": (lambda x: torch.func.vjp(square, x)[1](x.new_ones(()))[0].sum(), numbers(0.0, 0.3), [1.0, 1.0]),
    "func.jacrev": (lambda x: torch.func.jacrev(square)(x).sum(), numbers(0.0, 0.3), [1.0, 1.0]),
    "func.jacfwd": (lambda x: torch.func.jacfwd(square)(x).sum(), numbers(0.0, 0.3), [1.0, 1.0]),
    "func.hessian": (
        lambda x: torch.func.hessian(lambda y: (y.abs() * y * y).sum())(x).sum() - 12 * torch.relu(x).sum() + x.sum(),
        numbers(-0.3, 0.0), [-5.0, -5.0]),
    "autograd.grad": (through_autograd, numbers(0.0, 0.3), [1.0, 1.0]),
    "foreach": (
        lambda x: (torch._foreach_clamp_min([x], 0.0)[0] + torch._foreach_clamp_max([x], 0.0)[0]).sum(),
        numbers(0.0), [1.0]),
    "an argument that modes lose": (
        lambda x: F.l1_loss(x, torch.zeros_like(x), weight=numbers(1.0, 2.0, 3.0)),
        numbers(1.0, 1.0, 2.0), [1 / 6, 2 / 6, 3 / 6]),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", SMOOTH)
def test_programs_with_one_gradient_get_it(kind: str, seed: int) -> None:
    function, point, wanted = SMOOTH[kind]
    torch.testing.assert_close(subgrad.grad(function, seed=seed)(point), numbers(*wanted), rtol=1e-7, atol=1e-7)
    gradient = subgrad.grad(function, seed=seed)
    for _ in range(3):  # the fast path is the slow path, faster
        torch.testing.assert_close(gradient(point), numbers(*wanted), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("offset", [0.0, 1000.0, 1e4])
def test_a_number_that_is_added_hides_nothing(offset: float) -> None:
    for program in (
        lambda x: offset + torch.where(x > 0, 0.3 + x, 0.0).sum(),
        lambda x: offset + (x + (x.round() - x).detach()).sum() + x.abs().sum(),
    ):
        for dtype in (torch.float32, torch.float64):
            with pytest.raises(Refused, match=r"test_found.py:\d+"):
                subgrad.grad(program)(torch.zeros(2, dtype=dtype))


def no_grad_with_a_list(x: Tensor) -> Tensor:
    with torch.no_grad():
        t = torch.cat([x, x])
    return (x * t[: len(x)]).sum()


def no_grad_with_keywords(x: Tensor) -> Tensor:
    with torch.no_grad():
        t = torch.mul(input=x, other=1.0)
    return (x * t).sum()


def inference_mode_inside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        t = x * 1
    return (x * t.clone()).sum()


LEAKS: dict[str, Function] = {
    "detach_": lambda x: (x + (x.round() - x).detach_()).sum(),
    "no_grad with a list": no_grad_with_a_list,
    "no_grad with keywords": no_grad_with_keywords,
    "inference_mode": inference_mode_inside,
    "torch.tensor": lambda x: (x * torch.tensor(x)).sum(),
}


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("kind", LEAKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constants_that_move_are_refused(kind: str, dtype: torch.dtype) -> None:
    with pytest.raises(Refused, match=r"test_found.py:\d+"):
        subgrad.grad(LEAKS[kind])(torch.tensor([0.3], dtype=dtype))


def test_inference_mode_around_changes_nothing() -> None:
    f = lambda x: (3 * x).sum() + x.abs().sum()  # noqa: E731
    with torch.inference_mode():
        x = torch.zeros(2)
        assert subgrad.grad(lambda x: (x**2).sum())(torch.ones(2)).tolist() == [2.0, 2.0]
        assert subgrad.jvp(f, (x,), (torch.ones(2),))[1] == 8
        assert subgrad.min_norm(f)(x).norm == pytest.approx(8**0.5)
        assert torch.is_inference_mode_enabled()


def test_batch_statistics_are_kept_once_by_every_path() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[0].bias)
    x = torch.randn(8, 3)
    closure = lambda: net(x).sum()  # noqa: E731
    net.eval()
    subgrad.backward(closure, net.parameters())
    net.train()
    for _ in range(5):
        subgrad.backward(closure, net.parameters())
    assert net[1].num_batches_tracked == 5
    torch.testing.assert_close(net[1].running_var, torch.full((4,), 0.9**5))


def test_arguments_are_not_written_into_by_any_path() -> None:
    def f(x: Tensor, write: bool) -> Tensor:
        if write:
            x.mul_(2)
        return x.abs().sum()

    gradient, x = subgrad.grad(f), torch.tensor([0.0, 1.0, -3.0])
    gradient(x, False)
    assert gradient(x, True)[1:].tolist() == [2.0, -2.0]
    assert x.tolist() == [0.0, 1.0, -3.0]


def test_a_forward_mode_that_is_wrong_is_not_believed() -> None:
    matrix = torch.tensor([[-3.0, -3, -2], [-3, -1, 2], [-3, -2, 0]]).double()
    value, slope = subgrad.jvp(torch.linalg.det, (matrix,), (torch.eye(3).double(),))
    torch.testing.assert_close(slope, numbers(-8.0)[0], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(value, torch.linalg.det(matrix))


def test_what_jumps_between_other_bins_is_refused() -> None:
    with pytest.raises(Refused):
        subgrad.grad(lambda x: x.sum() * torch.histc(x, 2, 0, 2)[0])(torch.tensor([1.0]))


def test_quantiles_move_with_where_they_are_taken() -> None:
    data = numbers(0.0, 1.0, 3.0)
    found = subgrad.grad(lambda p: torch.quantile(data, p))(numbers(0.5)[0])
    assert float(found) in (2.0, 4.0)


def test_backward_accumulates_in_place_and_calls_hooks_once() -> None:
    x = torch.zeros(3, requires_grad=True)
    seen: list[Any] = []
    x.register_hook(lambda gradient: seen.append("tensor") or 2 * gradient)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append("accumulated"))
    subgrad.backward(lambda: (torch.relu(x) - torch.relu(-x)).sum(), x)
    held = x.grad
    subgrad.backward(lambda: (torch.relu(x) - torch.relu(-x)).sum(), [x])
    assert x.grad is held
    assert x.grad.tolist() == [4.0, 4.0, 4.0]
    assert seen == ["tensor", "accumulated"] * 2
