"""The general rule of pooling on windows small and large: ties are shared among all entries, in every mode; without, it
is torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import assert_same_bits
from kernels.fronts import without_front
from kernels.windows import LAYOUTS
from torch import Tensor

import subgrad
from subgrad.kinks.pooling_windows import Windows, adaptive, fractional, regular

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


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Windows]]] = {
    "one window": (lambda x: F.adaptive_max_pool2d(x, 1), lambda x: adaptive(x, (1, 1))),
    "few windows": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), lambda x: adaptive(x, (3, 2))),
    "many windows": (
        lambda x: F.adaptive_max_pool1d(x.flatten(2), 401),
        lambda x: adaptive(x.flatten(2)[:, :, None], (1, 401)),
    ),
    "more than entries": (lambda x: F.adaptive_max_pool2d(x, (40, 12)), lambda x: adaptive(x, (40, 12))),
    "over the border": (lambda x: F.max_pool2d(x, 13, 1, 6), lambda x: regular(x, (13, 13), (1, 1), 6)),
    "few, over the border": (lambda x: F.max_pool2d(x, 21, 9, 10), lambda x: regular(x, (21, 21), (9, 9), 10)),
    "spread out": (lambda x: F.max_pool2d(x, 9, 2, 4, 3, True), lambda x: regular(x, (9, 9), (2, 2), 4, 3, True)),
    "few, spread out": (lambda x: F.max_pool2d(x, 9, 8, 4, 3), lambda x: regular(x, (9, 9), (8, 8), 4, 3)),
    "fractional": (
        lambda x: F.fractional_max_pool2d(x, (3, 4), (7, 9), _random_samples=SAMPLES),
        lambda x: fractional(x, (3, 4), (7, 9), SAMPLES),
    ),
}
SAMPLES = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def window_by_window(x: Tensor, values: Tensor, windows: Windows, cotangent: Tensor) -> Tensor:
    """The gradient: of every window its cotangent, divided by the number of its largest entries."""
    found = torch.zeros_like(x).view(6, -1)
    positions, valid = (
        each.expand(2, 3, *each.shape[-2:]).flatten(0, 1) for each in (windows.positions, windows.valid)
    )
    for plane in range(6):
        entries = x.view(6, -1)[plane][positions[plane]]
        hits = (entries == values.view(6, -1)[plane][:, None]) & valid[plane]
        shares = torch.where(hits, (cotangent.view(6, -1)[plane] / hits.sum(1).clamp(min=1))[:, None], 0)
        found[plane].index_add_(0, positions[plane].flatten(), shares.flatten())
    return found.view_as(x)


@pytest.mark.parametrize("name", CASES)
def test_it_is_shared_window_by_window(name: str) -> None:
    call, windows_of = CASES[name]
    x = few_numbers()
    x[1, 2] = float("-inf")
    leaf = x.clone().requires_grad_()
    with subgrad.use("min-norm"), without_front():
        out = call(leaf)
    wanted = window_by_window(x, out.detach(), windows_of(x), cotangent(out).detach())
    assert torch.equal(out, call(x))
    torch.testing.assert_close(torch.autograd.grad(out, leaf, cotangent(out))[0], wanted)


@pytest.mark.parametrize("name", CASES)
def test_windows_of_nan_are_torchs_own(name: str) -> None:
    call, windows_of = CASES[name]
    x = few_numbers()
    x[0, 1, 4:7, 5:9] = float("nan")
    leaf = x.clone().requires_grad_()
    own = call(leaf)
    with subgrad.use("min-norm"), without_front():
        out = call(leaf)
    assert own.isnan().any()
    v = cotangent(out)
    by_nan, other = torch.where(out.isnan(), v, 0), torch.where(out.isnan(), 0, v)
    found, torchs = (torch.autograd.grad(each, leaf, by_nan, retain_graph=True)[0] for each in (out, own))
    assert torch.equal(found, torchs)
    wanted = window_by_window(x, out.detach(), windows_of(x), other)
    torch.testing.assert_close(torch.autograd.grad(out, leaf, other)[0], wanted)


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


EVENLY_APART: dict[str, Callable[[Tensor], Tensor]] = {
    "side by side": lambda x: F.max_pool2d(x, 2),
    "overlapping, over the border": lambda x: F.max_pool2d(x, 3, 2, 1, 1, True),
    "one apart": lambda x: F.max_pool2d(x, (3, 2), 1, 1),
    "spread out": lambda x: F.max_pool2d(x, 3, 2, 1, 2),
    "far apart": lambda x: F.max_pool2d(x, 2, (3, 4), 1),
    "in space": lambda x: F.max_pool3d(x.unsqueeze(-3), (1, 3, 3), (1, 2, 2), (0, 1, 1)),
    "a line": lambda x: F.max_pool1d(x.flatten(2), 3, 2, 1),
    "adaptive": lambda x: F.adaptive_max_pool2d(x, (7, 3)),
    "one window": lambda x: F.adaptive_max_pool2d(x, 1),
    "without a batch": lambda x: F.max_pool2d(x[0], 3, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", EVENLY_APART)
def test_windows_that_do_not_tie_are_torchs_to_the_bit_though_others_do(
    name: str, dtype: torch.dtype, layout: str
) -> None:
    """Those of nan, too; and cotangents that are infinite or nan reach nobody else."""
    generator = torch.Generator().manual_seed(0)
    planes = [torch.randperm(14 * 12, generator=generator) for _ in range(2 * 11)]
    x = torch.stack(planes).view(2, 11, 14, 12).to(dtype)
    tied = 200.0
    x[0, 1:, 3:9, 4:7], x[1, 2, 1, 1] = tied, float("nan")
    x = x.contiguous(memory_format=LAYOUTS[layout]).requires_grad_()
    own = EVENLY_APART[name](x)
    with subgrad.use("min-norm"), without_front():
        out = EVENLY_APART[name](x)
    assert_same_bits(out, own)
    assert out.stride() == own.stride()
    v = torch.randn(out.shape, generator=generator).to(dtype)
    for each in v, torch.where(v > 1.5, float("inf"), v), torch.where(v > 1.5, float("nan"), v):
        alone = torch.where(out == tied, 0, each)
        found, torchs = (torch.autograd.grad(result, x, alone, retain_graph=True)[0] for result in (out, own))
        assert_same_bits(found, torchs)
        assert found.stride() == torchs.stride()


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_without_ties_nothing_is_changed(outputs: tuple[int, int]) -> None:
    x = torch.randperm(2 * 3 * 29 * 31).double().view(2, 3, 29, 31).requires_grad_()
    own = F.adaptive_max_pool2d(x, outputs)
    with subgrad.use("min-norm"), without_front():
        found = F.adaptive_max_pool2d(x, outputs)
    assert torch.equal(*(torch.autograd.grad(out, x, cotangent(out))[0] for out in (found, own)))
