"""Max-pooling on the CPU by the loops of the C++ part: tied windows share as by the plain rule, and those without ties
are torch's own to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import DTYPES, assert_same_bits, cotangent
from kernels.fronts import python_run_by, without_front
from kernels.windows import ALL_POOLINGS, LARGE, LAYOUTS, input_of, pooled_with_indices
from torch import Tensor

import subgrad
from subgrad.kernels.native import build

pytestmark = pytest.mark.skipif(not build.is_used(), reason="needs `subgrad build`, and so a C++ compiler")
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "max_pool1d": lambda x: F.max_pool1d(x.flatten(2), 3, 2, 1),
    "max_pool1d, one apart": lambda x: F.max_pool1d(x.flatten(2), 3, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool3d": lambda x: F.max_pool3d(x.unsqueeze(2), (1, 3, 3), 2, (0, 1, 1)),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x.flatten(2), 7),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (5, 4)),
    "without a batch": lambda x: F.max_pool2d(x[0], 2),
    "of every second entry": lambda x: F.max_pool2d(x[:, :, ::2, 1:], 2),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ALL_POOLINGS)
def test_gradients_are_those_of_the_plain_rule(name: str, layout: str, dtype: torch.dtype) -> None:
    x = input_of(name, dtype, "cpu", layout).requires_grad_()
    with subgrad.use("min-norm"):
        found, indices = pooled_with_indices(x, name)
        with without_front():
            plain, chosen = pooled_with_indices(x, name)
    assert_same_bits(found, plain)
    assert found.stride() == plain.stride()
    assert torch.equal(indices[plain > float("-inf")], chosen[plain > float("-inf")])
    v = cotangent(plain).nan_to_num(0.25, 1.0, -1.0)
    one, other = (torch.autograd.grad(out, x, v)[0] for out in (found, plain))
    torch.testing.assert_close(
        one, other, rtol=2e-2 if x.element_size() == 2 else 1e-6, atol=0.2 if name in LARGE else 5e-2
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ALL_POOLINGS)
def test_windows_without_ties_are_torchs_own(name: str, layout: str) -> None:
    x = input_of(name, torch.float32, "cpu", layout, tied=False).requires_grad_()
    own, chosen = pooled_with_indices(x, name)
    with subgrad.use("min-norm"):
        found, indices = pooled_with_indices(x, name)
    assert_same_bits(found, own)
    assert torch.equal(indices, chosen)
    v = torch.randn(own.shape, generator=torch.Generator().manual_seed(2))
    assert_same_bits(*(torch.autograd.grad(out, x, v)[0] for out in (found, own)))


PLANES = [(1, 1), (3, 1), (1, 8), (2, 16), (1, 24), (5, 7), (2, 20), (3, 12), (1, 3)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("planes", PLANES, ids=str)
def test_however_many_planes_are_looked_at_together(planes: tuple[int, int], layout: str, dtype: torch.dtype) -> None:
    """One by one, as they lie, or copied, sixteen of them or what there are; some twice."""
    for name in ALL_POOLINGS:
        x = input_of(name, dtype, "cpu", layout, planes=planes).requires_grad_()
        with subgrad.use("min-norm"):
            found, indices = pooled_with_indices(x, name)
            with without_front():
                plain, chosen = pooled_with_indices(x, name)
        assert_same_bits(found, plain)
        assert torch.equal(indices[plain > float("-inf")], chosen[plain > float("-inf")]), name
        v = cotangent(plain).nan_to_num(0.25, 1.0, -1.0)
        one, other = (torch.autograd.grad(out, x, v)[0] for out in (found, plain))
        rtol, atol = (5e-2, 0.3) if x.element_size() == 2 else (1e-5, 1e-4)
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_every_form_agrees_with_the_plain_rule_in_every_mode(name: str, layout: str) -> None:
    x = input_of("overlapping", torch.float64, "cpu", layout).nan_to_num(0.5, 1.0, -1.0).requires_grad_()
    with subgrad.use("min-norm"):
        found = CALLS[name](x)
        with without_front():
            plain = CALLS[name](x)
        v = cotangent(plain).nan_to_num(0.25, 1.0, -1.0).requires_grad_()
        moved = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)
        _, ahead = torch.func.jvp(CALLS[name], (x.detach(),), (moved,))
    assert_same_bits(found, plain)
    firsts = [torch.autograd.grad(out, x, v, create_graph=True)[0] for out in (found, plain)]
    torch.testing.assert_close(*firsts)
    torch.testing.assert_close((firsts[0] * moved).sum(), (ahead * v).sum())
    seconds = [torch.autograd.grad(first, v, moved)[0] for first in firsts]
    torch.testing.assert_close(*seconds)


@pytest.mark.parametrize("width", [2, 20], ids=["small", "large"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 3, 16, 20])
def test_windows_that_reach_over_all_entries_are_torchs_own(channels: int, layout: str, width: int) -> None:
    """Spread out, one has an entry before the first row and one behind the last."""
    x = torch.randn(2, channels, 2, 2 * width).contiguous(memory_format=LAYOUTS[layout]).requires_grad_()

    def pool() -> tuple[Tensor, Tensor]:
        return F.max_pool2d(x, (2, width), (1, width), (1, 0), (3, 1), return_indices=True)  # pyright: ignore[reportReturnType]

    own, chosen = pool()
    assert bool((own == float("-inf")).all())
    with subgrad.use("min-norm"):
        found, indices = pool()
    assert torch.equal(found, own)
    assert torch.equal(indices, chosen)
    (gradient,) = torch.autograd.grad(found, x, torch.randn(found.shape))  # torch's own would write beside its memory
    assert not gradient.any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [(2, 2), (9, 4), (2, 20), (4, 9)], ids=str)
@pytest.mark.parametrize("channels", [1, 3, 20])
def test_windows_of_nothing_but_minus_infinity(channels: int, kernel: tuple[int, int], layout: str) -> None:
    x = torch.full((2, channels, 18, 40), float("-inf"))
    x[..., 0, 0] = 5.0
    x = x.contiguous(memory_format=LAYOUTS[layout]).requires_grad_()
    own, chosen = F.max_pool2d(x, kernel, return_indices=True)
    with subgrad.use("min-norm"):
        found, indices = F.max_pool2d(x, kernel, return_indices=True)
    assert torch.equal(found, own)
    v = torch.randn(own.shape)
    (gradient,) = torch.autograd.grad(found, x, v)
    shared = F.interpolate(v, scale_factor=kernel) / (kernel[0] * kernel[1])
    wanted = torch.zeros_like(x)
    wanted[..., : shared.shape[-2], : shared.shape[-1]] = shared
    wanted[..., : kernel[0], : kernel[1]] = 0
    wanted[..., 0, 0] = v[..., 0, 0]
    torch.testing.assert_close(gradient, wanted)
    assert torch.equal(indices, chosen)


def test_an_empty_batch_is_torchs_own() -> None:
    x = torch.zeros(0, 3, 8, 8, requires_grad=True)
    with subgrad.use("min-norm"):
        out = F.max_pool2d(x, 2)
    assert out.shape == (0, 3, 4, 4)
    assert torch.autograd.grad(out.sum(), x)[0].shape == x.shape


def test_more_shapes_than_are_remembered() -> None:
    """The first are forgotten, and graphs of theirs keep what their backward needs."""
    kept = []
    with subgrad.use("min-norm"):
        for size in range(2, 302):
            x = torch.zeros(1, 1, size, requires_grad=True)
            kept.append((x, F.max_pool1d(x, 2), size // 2))
            seen = python_run_by(lambda x=x: F.max_pool1d(x, 2))
            assert not seen, (size, seen)
    for x, out, windows in kept:
        v = torch.arange(1.0, windows + 1).view_as(out)
        wanted = torch.zeros(x.numel())
        wanted[: 2 * windows] = v.flatten().repeat_interleave(2) / 2
        assert torch.equal(torch.autograd.grad(out, x, v)[0].flatten(), wanted)
