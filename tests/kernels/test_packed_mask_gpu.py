"""Fake quantisation on CUDA: the gradients of the plain path to the bit, from an eighth of what torch keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from kernels.calls import assert_same_bits
from torch import Tensor

from subgrad import functional
from subgrad.kernels import set_packed

pytestmark = pytest.mark.gpu
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CONVENTIONS = ("pass-through", "min-norm", "left", "right", "mean", "jax", "straight-through")


@pytest.fixture(autouse=True)
def on_a_gpu() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    set_packed("always")
    yield
    set_packed("auto")


def entries(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (2 * torch.randn(shape, generator=generator)).to("cuda", dtype).requires_grad_()


def cotangent(of: Tensor) -> Tensor:
    return (torch.arange(of.numel(), device="cuda") % 7 - 2.5).reshape(of.shape).to(of.dtype)


def channels_last(x: Tensor) -> Tensor:
    return x.detach().reshape(-1, 4, 5, 2).contiguous(memory_format=torch.channels_last).requires_grad_()


Quantise = Callable[..., Tensor]
CALLS: dict[str, tuple[Any, ...]] = {
    "per tensor": (0.25, 0, -8, 7),
    "tensors": (torch.tensor(0.25), torch.tensor(3), 0, 15),
    "per channel": (torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 1, -1, 3]), -8, 7, 1),
}


def on_device(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.cuda() if isinstance(each, Tensor) else each for each in given)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_bits_give_what_bytes_give(name: str, dtype: torch.dtype) -> None:
    given = on_device(CALLS[name])
    for size in (40, 4000, 100_040):
        flat = entries((size,), dtype)
        for x in (flat.detach().reshape(-1, 4, 5, 2).requires_grad_(), channels_last(flat)):
            for convention in CONVENTIONS:
                out = functional.fake_quantize(x, *given, convention=convention)
                (found,) = torch.autograd.grad(out, x, cotangent(out))
                set_packed("never")
                plain = functional.fake_quantize(x, *given, convention=convention)
                (wanted,) = torch.autograd.grad(plain, x, cotangent(plain))
                set_packed("always")
                assert_same_bits(out, plain)
                assert_same_bits(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_gradients_are_torchs_own_under_pass_through(dtype: torch.dtype) -> None:
    x = entries((300, 4), dtype)
    with torch.no_grad():
        x[:2] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e4])
    for convention in ("pass-through", "straight-through", "mean"):
        out, plain = functional.fake_quantize(x, 0.25, 3, 0, 15, convention=convention), quantised(x)
        assert_same_bits(out, plain)
    out = functional.fake_quantize(x, 0.25, 3, 0, 15)
    found = torch.autograd.grad(out, x, cotangent(out))[0]
    assert_same_bits(found, where_torch_passes(quantised(x), x, cotangent(out)))


def where_torch_passes(out: Tensor, x: Tensor, given: Tensor) -> Tensor:
    """Torch's own gradient, with a plain 0 beyond the levels where torch has -0.0, and nan of an infinite cotangent."""
    (passes,) = torch.autograd.grad(out, x, torch.ones_like(out))
    return torch.where(passes == 1, given, 0.0)


def quantised(x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15)


def held(function: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """Bytes that stay for the backward, besides the result."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    out = function(x)
    return torch.cuda.memory_allocated() - before - out.numel() * out.element_size()


def test_a_bit_an_entry_is_held_where_torch_holds_a_byte_and_nothing_straight_through() -> None:
    x, size = entries((1 << 20,), torch.float32), 1 << 20
    set_packed("auto")
    assert held(quantised, x) == size
    assert held(lambda x: functional.fake_quantize(x, 0.25, 3, 0, 15), x) == size // 8
    assert held(lambda x: functional.fake_quantize(x, 0.25, 3, 0, 15, convention="min-norm"), x) == size // 8
    assert held(lambda x: functional.fake_quantize(x, 0.25, 3, 0, 15, convention="straight-through"), x) == 0


def test_second_derivatives_and_cotangents_in_another_layout() -> None:
    x = entries((64, 32), torch.float32)
    out = functional.fake_quantize(x, 0.25, 0, -8, 7)
    given = cotangent(out).T.contiguous().T.requires_grad_()
    (found,) = torch.autograd.grad(out, x, given, create_graph=True)
    assert_same_bits(found.detach(), where_torch_passes(quantised_by(x), x, given.detach()))
    (second,) = torch.autograd.grad(found.sum(), given)
    torch.testing.assert_close(second * given.detach(), found.detach(), rtol=0, atol=0)


def quantised_by(x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 0.25, 0, -8, 7)


@pytest.mark.compiled
def test_compiled() -> None:
    x = entries((1 << 17,), torch.float32)
    for convention in ("pass-through", "min-norm", "straight-through"):

        def function(x: Tensor, convention: str = convention) -> Tensor:
            return functional.fake_quantize(x * 1.0, 0.25, 0, -8, 7, convention=convention)

        out, plain = torch.compile(function)(x), function(x)
        assert_same_bits(out, plain)
        assert_same_bits(*(torch.autograd.grad(each, x, cotangent(each))[0] for each in (out, plain)))


def test_a_step_is_captured_in_a_cuda_graph() -> None:
    x = entries((1 << 17,), torch.float32)
    given = cotangent(x)

    def step() -> Tensor:
        return torch.autograd.grad(functional.fake_quantize(x, 0.25, 0, -8, 7), x, given)[0]

    wanted = step()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    assert_same_bits(found, wanted)


def test_learned_steps_are_those_of_the_cpu() -> None:
    x, scale, zero_point = entries((64, 4), torch.float32), torch.tensor([0.25]), torch.tensor([2.0])
    found = []
    for device in ("cpu", "cuda"):
        leaves = [each.detach().to(device).requires_grad_() for each in (x, scale, zero_point)]
        out = functional.fake_quantize(*leaves, -8, 7, grad_factor=0.5)
        found.append([each.cpu() for each in torch.autograd.grad(out, leaves, cotangent(x).to(device))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
