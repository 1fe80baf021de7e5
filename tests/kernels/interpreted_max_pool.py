"""The Triton kernels of max-pooling on a CPU, by Triton's interpreter, which knows no bfloat16.

Run by `test_triton.py`, in their own process and without the C++ part: with it, the rule that they are compared with
would be computed by the very same kernels.
"""

from __future__ import annotations

import pytest
import torch
from kernels.calls import assert_same_bits, cotangent
from kernels.interpreter import launch_of
from kernels.windows import ALL_POOLINGS, LARGE, LAYOUTS, arguments_of, input_of, pooled_with_indices
from torch import Tensor

import subgrad
from subgrad.kernels import max_pool, triton_launch
from subgrad.kernels import triton_max_pool as kernels
from subgrad.kinks.conditions import tied_in_windows
from subgrad.kinks.pooling_windows import adaptive, of_call, regular

CASES = [(name, layout, torch.float32) for name in ALL_POOLINGS for layout in LAYOUTS]
CASES += [
    (name, layout, dtype)
    for name in ("overlapping", "adaptive", "more entries than bits")
    for layout in LAYOUTS
    for dtype in (torch.float16, torch.float64)
]
FEW = ("side by side", "overlapping", "adaptive", "in space, overlapping", *LARGE)
# More positions and planes, or channels, than a program does, and some left over.
MORE_THAN_A_PROGRAM = {torch.contiguous_format: (3, 5, 21, 25), torch.channels_last: (2, 131, 7, 9)}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launch, "launch", launch_of(kernels))
    monkeypatch.setattr(max_pool, "_is_by_loops", lambda x: False)


def few_planes(name: str, dtype: torch.dtype, layout: str, tied: bool = True) -> Tensor:
    """Contiguous planes are taken one by one, whatever they belong to: two of them, which hold what is special."""
    return input_of(name, dtype, "cpu", layout, tied, planes=(1, 2) if layout == "contiguous" else (2, 3))


def shared(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    geometry = max_pool.geometry_of(x, arguments_of(name))
    assert geometry is not None
    return max_pool.pooled(x, geometry, True)


def by_the_plain_rule(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    with subgrad.use("min-norm"):
        values, indices = pooled_with_indices(x, name)
    assert type(values.grad_fn).__name__ != f"{max_pool.Shared.__name__}Backward"
    return values, indices


@pytest.mark.parametrize(("name", "layout", "dtype"), CASES, ids=str)
def test_gradients_are_those_of_the_plain_rule(name: str, layout: str, dtype: torch.dtype) -> None:
    x = few_planes(name, dtype, layout).requires_grad_()
    values, indices = shared(x, name)
    wanted, chosen = by_the_plain_rule(x, name)
    assert_same_bits(values, wanted)
    assert values.stride() == wanted.stride()
    # Of windows of -inf torch's kernel for channels last in space has an index outside of them.
    assert torch.equal(indices[wanted > float("-inf")], chosen[wanted > float("-inf")])
    v = cotangent(wanted).nan_to_num(0.25, 1.0, -1.0)
    one, other = (torch.autograd.grad(out, x, v, retain_graph=True)[0] for out in (values, wanted))
    # The plain rule rounds every sum to 16 bits.
    torch.testing.assert_close(one, other, rtol=2e-2 if dtype is torch.float16 else 1e-6, atol=1e-2)
    (by_torch,) = torch.autograd.grad(values, x, v, create_graph=True)
    # So do torch's operators, by which it is differentiated again.
    rtol, atol = (1e-3, 2e-3) if dtype is torch.float16 else (1e-6, 1e-5)
    torch.testing.assert_close(by_torch.detach(), one, rtol=rtol, atol=atol)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FEW)
def test_windows_without_ties_are_torchs_own(name: str, layout: str) -> None:
    x = few_planes(name, torch.float32, layout, tied=False).requires_grad_()
    (values, indices), (wanted, chosen) = shared(x, name), pooled_with_indices(x, name)
    assert_same_bits(values, wanted)
    assert torch.equal(indices, chosen)
    v = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2))
    assert_same_bits(*(torch.autograd.grad(out, x, v)[0] for out in (values, wanted)))


@pytest.mark.parametrize("name", LARGE)
def test_long_lines_are_as_short_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Largest entries, their places and their numbers, of both zeros and of nan too."""
    x = few_planes(name, torch.float32, "contiguous")
    found = []
    for length in (64, 0):
        monkeypatch.setattr(max_pool, "LONG", length)
        max_pool._regular.cache_clear()
        max_pool._adaptive.cache_clear()
        geometry = max_pool.geometry_of(x, arguments_of(name))
        assert geometry is not None
        found.append(geometry.pool(x, False))
    assert_same_bits(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("name", ["side by side", "overlapping", "spread out", "adaptive", *LARGE])
def test_second_derivatives_are_those_of_the_plain_rule(name: str) -> None:
    x = few_planes(name, torch.float64, "contiguous").nan_to_num(0.25).requires_grad_()
    found, _ = shared(x, name)
    plain, _ = by_the_plain_rule(x, name)
    v = cotangent(plain).nan_to_num(0.25, 1.0, -1.0).requires_grad_()
    firsts = [torch.autograd.grad(out, x, v, create_graph=True)[0] for out in (found, plain)]
    torch.testing.assert_close(*firsts)
    w = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)
    seconds = [torch.autograd.grad(each, (x, v), w, allow_unused=True) for each in firsts]
    assert seconds[0][0] is not None
    assert not seconds[0][0].any()
    torch.testing.assert_close(seconds[0][1], seconds[1][1])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ALL_POOLINGS)
def test_tied_windows_are_known(name: str, layout: str) -> None:
    x, arguments = few_planes(name, torch.float32, layout), arguments_of(name)
    geometry = max_pool.geometry_of(x, arguments)
    assert geometry is not None
    windows = of_call(adaptive if "output_size" in arguments else regular, {"self": x, **arguments})
    assert torch.equal(geometry.tied(x), tied_in_windows(x, windows))
    assert geometry.tied(x).any() == (geometry.entries > 1)


def test_cotangents_may_be_batched() -> None:
    x = few_planes("overlapping", torch.float64, "contiguous").requires_grad_()
    found, _ = shared(x, "overlapping")
    several = torch.randn(3, *found.shape, dtype=torch.float64)
    (batched,) = torch.autograd.grad(found, x, several, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(found, x, each, retain_graph=True)[0] for each in several]
    torch.testing.assert_close(batched, torch.stack(singly))


def test_tiles_leave_nothing_out() -> None:
    for layout, shape in MORE_THAN_A_PROGRAM.items():
        x = torch.randint(-2, 2, shape).float().contiguous(memory_format=layout).requires_grad_()
        found, _ = shared(x, "overlapping")
        plain, _ = by_the_plain_rule(x, "overlapping")
        assert_same_bits(found, plain)
        v = torch.randn(plain.shape)
        torch.testing.assert_close(*(torch.autograd.grad(out, x, v)[0] for out in (found, plain)))
