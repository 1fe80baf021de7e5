"""The Triton kernels on a CPU, by Triton's interpreter. Run by `test_triton.py`, in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels.calls import assert_same_bits, cotangent
from kernels.interpreter import launch_of
from torch import Tensor

import subgrad
from subgrad import functional
from subgrad.apply.call import Call
from subgrad.apply.operators import operator
from subgrad.apply.plan import plan
from subgrad.kernels import bit_planes, cuda_bitmask, cuda_corner_scan, cuda_corners, packed_mask, triton_launch
from subgrad.kernels import triton_bitmask as kernels
from subgrad.kernels.piecewise import BETWEEN_TENSORS, STRAIGHT, coding_of
from subgrad.kinks.overloads import overload

TENSORS = ((128, torch.float32), (2500, torch.float32), (1300, torch.float64))  # blocks are of 1024 and 512
CALLS: dict[str, dict[str, Any]] = {  # of which torch has the same values on CPU and CUDA
    "relu": {},
    "clamp": {"min": -1.0, "max": 2.0},
    "abs": {},
    "leaky_relu": {"negative_slope": -0.25},
    "maximum": {"other": None},
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launch, "launch", launch_of(kernels))


def inputs(size: int, dtype: torch.dtype) -> Tensor:
    """Far from kinks, but for some in the middle: of many blocks some have none."""
    x = (torch.arange(size) % 17 / 16 + 0.03125).to(dtype) * (-1) ** torch.arange(size)
    x[size // 2 : size // 2 + 7] = torch.tensor([0.0, -1.0, 2.0, 0.5, -0.5, 3.0, -3.0], dtype=dtype)
    return x


@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize("convention", ["min-norm", "mean"])
def test_values_and_gradients(op: str, convention: str) -> None:
    for size, dtype in TENSORS:
        given = {"self": inputs(size, dtype).requires_grad_(), **CALLS[op]}
        if "other" in given:
            other = inputs(size, dtype).flip(0)
            other[::5] = inputs(size, dtype)[::5]  # ties
            given["other"] = other.requires_grad_()
        compare(op, convention, given)


@pytest.mark.parametrize("convention", ["mean", "left", "right"])
@pytest.mark.parametrize(("op", "numbers"), [("hardswish", ()), ("elu", (2.0, 1.0, 1.0)), ("selu", ())])
def test_gradients_are_mended(op: str, numbers: tuple[float, ...], convention: str) -> None:
    for size, dtype in TENSORS:
        x = inputs(size, dtype).requires_grad_()
        with subgrad.use(convention):
            out = overload(op)(x, *numbers)
        (wanted,) = torch.autograd.grad(out, x, cotangent(out))
        arguments = operator(op).bind([x, *numbers], {})
        planned = plan(operator(op), subgrad.Convention(convention), arguments)
        if planned.choices:
            call = Call(operator(op), op, {}, subgrad.Convention(convention), None, (x, *numbers), {})
            curve = cuda_corners.Curve(planned, call)
            assert_same_bits(curve.gradient(cotangent(out), x), wanted)  # in grad mode, by operators of torch's
            with torch.no_grad():
                assert_same_bits(curve.gradient(cotangent(out), x), wanted)


def test_without_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_planes, "MOST_FLAGS", 0)
    test_values_and_gradients("abs", "min-norm")


def compare(op: str, convention: str, arguments: dict[str, Any]) -> None:
    operands = [name for name, value in arguments.items() if isinstance(value, Tensor)]
    tensors = [arguments[name] for name in operands]
    with subgrad.use(convention):
        wanted = overload(op)(*operator(op).args(arguments))
    gradients = torch.autograd.grad(wanted, tensors, cotangent(wanted))
    planned = plan(operator(op), subgrad.Convention(convention), arguments)
    row = STRAIGHT[op] if len(operands) == 1 else BETWEEN_TENSORS[op, operands[1]]
    coding = coding_of(row, planned, arguments, tuple(operands))
    assert coding is not None
    other = "none" if len(operands) == 1 else "tensor"
    mask = cuda_bitmask.Mask(row.value(arguments), row.numbers(arguments), coding, other)
    x, *others = (tensor.detach() for tensor in tensors)
    out = torch.empty_like(x)
    second = others[0] if others else None
    sized = mask.sized(x, second)
    assert sized is not None
    held = torch.full((sized.bytes,), 255, dtype=torch.uint8)  # what is not written shows
    sized.write(x, x if second is None else second, out, held)
    assert_same_bits(out, wanted)
    found = tuple(torch.empty_like(x) for _ in tensors)
    sized.weigh(cotangent(wanted), held, found[0], found[-1])
    for weights, one, other in zip(coding.weights, found, gradients, strict=True):
        assert_same_bits(one, other)
        assert_same_bits(cuda_bitmask._weigh_by_torch(sized, weights, cotangent(wanted), held), other)


@pytest.mark.parametrize("size", [20, 4096, 9001])
@pytest.mark.parametrize("convention", ["pass-through", "mean"])
def test_masks_of_fake_quantisation_are_packed(size: int, convention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (inputs(size, torch.float32) * 4).requires_grad_()
    given, keep = (x, 0.25, 0, -2, 5), packed_mask.PackedMask()
    wanted = functional.fake_quantize(*given, convention=convention)
    held = wanted.grad_fn.saved_tensors
    assert all(mask.dtype is torch.bool and mask.any() for mask in held)
    kept, layout = keep.kept(held), (wanted.shape, wanted.stride())
    assert kept.shape == (len(held), -(-size // 8))
    (gradient,) = torch.autograd.grad(wanted, x, cotangent(wanted))
    assert_same_bits(keep.weighed(kept, wanted.grad_fn.weights, layout, cotangent(wanted)), gradient)
    if convention == "pass-through":
        found = torch.empty_like(gradient)
        packed_mask.reading(size, 4)(cotangent(wanted), kept[0], found, found)
        assert_same_bits(found, gradient)


@pytest.mark.parametrize(("size", "dtype"), [*TENSORS, (5000, torch.float16)], ids=str)
@pytest.mark.parametrize("places", [(0.0,), (-1.0, 2.0), (0.1, 0.1)], ids=str)
def test_entries_on_corners_are_counted(size: int, dtype: torch.dtype, places: tuple[float, ...]) -> None:
    """In blocks that have some, none, or a part of a block; nan and what fills a block up are none."""
    x = inputs(size, dtype)
    x[::7], x[1::9], x[-1] = 2.0, torch.nan, 0.1
    x[-2] = places[0]
    held = tuple(float(torch.tensor(place, dtype=dtype)) for place in places)
    wanted = [int((x == place).sum()) for place in held]
    assert cuda_corner_scan.counted(x, held, together=False).tolist() == wanted
    assert int(cuda_corner_scan.counted(x, held, together=True)) == sum(wanted)
