"""Operators that are curved between their kinks, in C++: torch's own derivative, mended as by the rules in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import DTYPES, assert_same_bits, cotangent, every_number
from kernels.fronts import python_run_by, without_front
from torch import Tensor

import subgrad
from subgrad.apply import dispatch
from subgrad.kernels.native import build

pytestmark = pytest.mark.skipif(not build.is_used(), reason="needs `subgrad build`, and so a C++ compiler")

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "hardswish": F.hardswish,
    "hardswish_": lambda x: F.hardswish(x, inplace=True),
    "elu": lambda x: F.elu(x, 2.0),
    "selu": F.selu,
    "elu_": lambda x: F.elu_(x, 2.0),  # which torch differentiates from its result
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CONVENTIONS = (
    "mean",
    "left",
    "right",
    "min-norm",
    subgrad.Convention("torch", hardswish=0.75, elu=1.25, surrogate=True),
)


@pytest.fixture(autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params.get("device") == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    dispatch.install()


def is_mended(name: str, dtype: torch.dtype, device: str) -> bool:
    return name != "elu_" and (device == "cuda" or dtype in (torch.float32, torch.float64))


def derivatives(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[list[Tensor], str]:
    """Value, gradient, gradient to be differentiated, and its derivatives; and the node that made them."""
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    out = call(leaf.clone(memory_format=torch.preserve_format))
    vector = cotangent(out).requires_grad_()
    (plain,) = torch.autograd.grad(out, leaf, vector, retain_graph=True)
    (first,) = torch.autograd.grad(out, leaf, vector, create_graph=True)
    # Zeros of either sign stand where a kink has no second derivative.
    second = [each + 0.0 for each in torch.autograd.grad(first, (leaf, vector), cotangent(first).flip(0))]
    assert out.grad_fn is not None
    return [out, plain, first, *second], out.grad_fn.name()


def assert_as_in_python(call: Callable[[Tensor], Tensor], x: Tensor) -> str:
    derivatives(call, x)  # asks Python
    found, node = derivatives(call, x)
    with without_front():
        wanted, _ = derivatives(call, x)
    for one, other in zip(found, wanted, strict=True):
        assert_same_bits(one, other)
        assert one.stride() == other.stride()
    return node


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_every_number(name: str, dtype: torch.dtype, device: str) -> None:
    x = every_number(dtype, device)
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            node = assert_as_in_python(CALLS[name], x)
        if convention == "mean":
            assert ("Mended" in node) is is_mended(name, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["hardswish", "hardswish_", "selu"])
def test_layouts(name: str, device: str) -> None:
    x = torch.arange(-420.0, 420.0, device=device).reshape(4, 6, 5, 7).div(70).round()  # 3, -3 and 0 among them
    for each in (x.to(memory_format=torch.channels_last), x.mT, x[:, ::2], x[:1].expand(3, 6, 5, 7), x[:0], x[0, 0, 0]):
        with subgrad.use("mean"):
            assert_as_in_python(CALLS[name], each)
            assert_as_in_python(lambda x: CALLS[name](x).sum(0, keepdim=True), each)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["hardswish", "hardswish_", "elu", "selu"])
def test_no_python_runs_for_a_call_like_an_earlier_one(name: str, device: str) -> None:
    x = torch.tensor([-3.0, -1.0, 0.0, 1.0, 3.0, 5.0, 7.0, 9.0] * 16, device=device, requires_grad=True)

    def step() -> None:
        out = CALLS[name](x * 1)
        torch.autograd.grad(out, x, torch.full_like(out, 2.0))

    with subgrad.use("mean"):
        step()
        assert python_run_by(step) == []


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_written_into_a_saved_input_is_noticed(device: str) -> None:
    x = torch.ones(16, device=device, requires_grad=True)
    with subgrad.use("mean"):
        F.hardswish(x * 1)
        kept = x * 1
        out = F.hardswish(kept)
    kept.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["hardswish_", "selu"])
def test_compiled_autograd(name: str, device: str) -> None:
    x, g = torch.tensor([-3.0, 0.0, 1.0, 3.0], device=device, requires_grad=True), torch.arange(1.0, 5.0, device=device)
    with subgrad.use("mean"):
        CALLS[name](x * 1)
        (wanted,) = torch.autograd.grad(CALLS[name](x * 1), x, g)
        out = CALLS[name](x * 1)
    compiler: Any = torch._dynamo
    with compiler.compiled_autograd._enable(torch.compile(backend="eager")):
        out.backward(g)
    assert x.grad is not None
    assert x.grad.tolist() == wanted.tolist()
