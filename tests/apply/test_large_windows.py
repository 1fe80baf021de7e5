"""Adaptive max-pooling into few large windows: ties are shared among all, in every mode; without, it is torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.apply import large_windows

OUTPUTS = [(1, 1), (3, 2)]


def few_numbers() -> Tensor:
    return torch.randint(-2, 2, (2, 3, 29, 31), generator=torch.Generator().manual_seed(0)).double()


def cotangent(out: Tensor) -> Tensor:
    return torch.arange(1.0, out.numel() + 1, dtype=out.dtype).view_as(out) - 5


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_all_that_tie_are_given_the_same(outputs: tuple[int, int]) -> None:
    """Of zeros: each window's cotangent divided by its entries, as its mean would be."""
    x = torch.zeros(2, 3, 29, 31, dtype=torch.float64, requires_grad=True)
    with subgrad.use("min-norm"):
        out = F.adaptive_max_pool2d(x, outputs)
    (found,) = torch.autograd.grad(out, x, cotangent(out))
    torch.testing.assert_close(found, torch.autograd.grad(F.adaptive_avg_pool2d(x, outputs), x, cotangent(out))[0])


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_it_is_the_rule_of_small_windows(outputs: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = few_numbers()
    x[0, 1, 4, 5] = float("nan")  # whose window is torch's own
    x[1, 2] = float("-inf")
    x.requires_grad_()
    with subgrad.use("min-norm"):
        found = F.adaptive_max_pool2d(x, outputs)
        monkeypatch.setattr(large_windows, "_LARGE", 1 << 20)
        plain = F.adaptive_max_pool2d(x, outputs)
    assert type(found.grad_fn) is not type(plain.grad_fn)
    assert torch.equal(found.nan_to_num(9), plain.nan_to_num(9))
    torch.testing.assert_close(*(torch.autograd.grad(out, x, cotangent(out))[0] for out in (found, plain)))


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_every_mode_agrees(outputs: tuple[int, int]) -> None:
    x, moved = few_numbers(), torch.linspace(-1, 2, 2 * 3 * 29 * 31, dtype=torch.float64).view(2, 3, 29, 31)
    leaf = x.clone().requires_grad_()
    with subgrad.use("min-norm"):
        out = F.adaptive_max_pool2d(leaf, outputs)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, moved)
            ahead = torch.autograd.forward_ad.unpack_dual(F.adaptive_max_pool2d(dual, outputs)).tangent
    v = cotangent(out).requires_grad_()
    (first,) = torch.autograd.grad(out, leaf, v, create_graph=True)
    torch.testing.assert_close((first * moved).sum(), (ahead * v).sum())
    torch.testing.assert_close(torch.autograd.grad(first, v, moved)[0], ahead)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_without_ties_nothing_is_changed(outputs: tuple[int, int]) -> None:
    x = torch.randperm(2 * 3 * 29 * 31).double().view(2, 3, 29, 31).requires_grad_()
    own = F.adaptive_max_pool2d(x, outputs)
    with subgrad.use("min-norm"):
        found = F.adaptive_max_pool2d(x, outputs)
    assert found.grad_fn.name() == own.grad_fn.name()
    assert torch.equal(*(torch.autograd.grad(out, x, cotangent(out))[0] for out in (found, own)))
