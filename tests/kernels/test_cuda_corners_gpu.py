"""Operators that are curved between their kinks: one kernel mends torch's own gradient as the general rule has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import DTYPES, assert_same_bits, cotangent, every_number
from torch import Tensor

import subgrad
from subgrad.apply import executors
from subgrad.kernels.cuda_corners import CudaCorners

pytestmark = pytest.mark.gpu

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "hardswish": F.hardswish,
    "hardswish_": lambda x: F.hardswish(x, inplace=True),
    "elu": lambda x: F.elu(x, 2.0),
    "selu": F.selu,
    "elu_": lambda x: F.elu_(x, 2.0),
}
FROM_THE_RESULT = ("elu_",)  # is how torch differentiates these, which the general rule follows


@pytest.fixture(autouse=True)
def on_a_gpu() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    yield
    executors.forget()


def derivatives(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[list[Tensor], str]:
    """Value, gradient, gradient to be differentiated, and its derivatives; and the node that made them."""
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    out = call(leaf * 1)
    vector = cotangent(out).requires_grad_()
    (plain,) = torch.autograd.grad(out, leaf, vector, retain_graph=True)
    (first,) = torch.autograd.grad(out, leaf, vector, create_graph=True)
    # Zeros of either sign stand where a kink has no second derivative.
    second = [each + 0.0 for each in torch.autograd.grad(first, (leaf, vector), cotangent(first).flip(0))]
    return [out, plain, first, *second], out.grad_fn.name() if out.grad_fn else ""


def by_the_general_rule(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[list[Tensor], str]:
    with monkeypatch.context() as patched:
        patched.setattr(CudaCorners, "accepts", lambda *_: None)
        executors.forget()
        found = derivatives(call, x)
    executors.forget()
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_every_number(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    call, x = CALLS[name], every_number(dtype, "cuda")
    for convention in ("mean", "left", "right", "min-norm"):
        with subgrad.use(convention):
            general, _ = by_the_general_rule(monkeypatch, call, x)
            mended, node = derivatives(call, x)
        if convention == "mean":
            assert ("Mended" in node) is (name not in FROM_THE_RESULT)
        for one, other in zip(mended, general, strict=True):
            assert_same_bits(one, other)


@pytest.mark.parametrize("name", ["hardswish", "hardswish_", "selu"])
def test_layouts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(-420.0, 420.0, device="cuda").reshape(4, 6, 5, 7).div(70).round()  # 3, -3 and 0 among them
    for each in (x.to(memory_format=torch.channels_last), x.mT, x[:, ::2], x[:1].expand(3, 6, 5, 7), x[:0], x[0, 0, 0]):
        with subgrad.use("mean"):
            general, _ = by_the_general_rule(monkeypatch, CALLS[name], each)
            for one, other in zip(derivatives(CALLS[name], each)[0], general, strict=True):
                assert_same_bits(one, other)


def test_nothing_is_kept_beside_the_input() -> None:
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    with subgrad.use("mean"):
        F.hardswish(x)
        before = torch.cuda.memory_allocated()
        out = F.hardswish(x)
        assert torch.cuda.memory_allocated() - before == out.nbytes
