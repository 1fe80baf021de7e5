"""Calls of every operator that has a shortcut, and the inputs that they are compared on."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 1.5),
    "clamp": lambda x: torch.clamp(x, -1.0, 2.0),
    "clamp(min=-0.0)": lambda x: torch.clamp(x, -0.0, 2.0),
    "clamp, closed": lambda x: torch.clamp(x, 0.5, 0.5),
    "clamp, inexact in 16 bits": lambda x: torch.clamp(x, -0.1, 0.7),
    "clamp(min=)": lambda x: torch.clamp(x, min=0.0),
    "clamp(max=)": lambda x: torch.clamp(x, max=0.25),
    "clamp_min": lambda x: torch.clamp_min(x, 0.5),
    "clamp_max": lambda x: torch.clamp_max(x, 0.5),
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "threshold, inexact in 16 bits": lambda x: F.threshold(x, 0.7, 0.7),
    "threshold, jump": lambda x: F.threshold(x, 0.5, 2.0),
    "softshrink": lambda x: F.softshrink(x, 0.5),
    "softshrink, inexact in 16 bits": lambda x: F.softshrink(x, 0.7),
    "softshrink(0)": lambda x: F.softshrink(x, 0.0),
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.125),
    "leaky_relu(-0.0)": lambda x: F.leaky_relu(x, -0.0),
    "leaky_relu(-0.3)": lambda x: F.leaky_relu(x, -0.3),
    "abs": torch.abs,
    "maximum, number": lambda x: torch.maximum(x, torch.tensor(0.5, dtype=x.dtype, device=x.device)),
    "maximum, zero": lambda x: torch.maximum(x, torch.tensor(-0.0, dtype=x.dtype, device=x.device)),
    "minimum, number": lambda x: torch.minimum(x, torch.tensor(0.5, dtype=x.dtype, device=x.device)),
    "minimum, nan": lambda x: torch.minimum(x, torch.tensor(float("nan"), dtype=x.dtype, device=x.device)),
    "fmax, number": lambda x: torch.fmax(x, torch.tensor(0.5, dtype=x.dtype, device=x.device)),
    "clamp(min=tensor)": lambda x: torch.clamp(x, min=torch.tensor(0.5, dtype=x.dtype, device=x.device)),
    "clamp(max=tensor)": lambda x: torch.clamp(x, max=torch.tensor(0.5, dtype=x.dtype, device=x.device)),
    "maximum, constants": lambda x: torch.maximum(x, x.detach().flip(0)),
    "clamp(min=constants)": lambda x: torch.clamp(x, min=x.detach().flip(0)),
    "clamp(max=constants)": lambda x: torch.clamp(x, max=x.detach().flip(0)),
    "maximum of two": lambda x: torch.maximum(x, x.flip(0)),
    "minimum of two": lambda x: torch.minimum(x, x.flip(0) + 0),
    "minimum, other only": lambda x: torch.minimum(x.detach(), x.flip(0)),
}
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu_": torch.relu_,
    "relu6_": lambda x: F.relu6(x, inplace=True),
    "hardtanh_": lambda x: F.hardtanh_(x, -0.5, 1.5),
    "clamp_": lambda x: x.clamp_(-1.0, 2.0),
    "clamp_min_": lambda x: x.clamp_min_(0.5),
    "threshold_": lambda x: F.threshold_(x, 0.0, 0.0),
    "leaky_relu_": lambda x: F.leaky_relu_(x, 0.125),
    "abs_": torch.abs_,
}
CONVENTIONS = (
    *("min-norm", "documented", "mean", "left", "right", "torch-2.13", "torch-2.14", "pass-through"),
    subgrad.Convention("min-norm", clamp=0.25, relu=1.0, abs=0.5, surrogate=True),
)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def every_number(dtype: torch.dtype, device: str) -> Tensor:
    """All 65,536 patterns of 16 bits, as numbers of a type: nan, infinities, zeros and subnormal numbers among them."""
    patterns = torch.arange(1 << 16, dtype=torch.int32, device=device).to(torch.int16)
    narrow = torch.bfloat16 if dtype is torch.bfloat16 else torch.float16
    return patterns.view(narrow).to(dtype)


def cotangent(like: Tensor) -> Tensor:
    """No two neighbours alike, both signs, zeros, nan and infinities among them."""
    numbers = (torch.arange(like.numel(), device=like.device) % 97 - 48).to(like.dtype) / 8
    numbers[5::1001], numbers[6::1003], numbers[7::1005] = float("inf"), float("nan"), -0.0
    return numbers.reshape(like.shape)


def bits(tensor: Tensor) -> Tensor:
    """The bits of every number, with one pattern for all that are nan: processors choose among those."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    patterns = tensor.detach().contiguous().view(whole)
    return torch.where(tensor.detach().isnan(), torch.iinfo(whole).max, patterns)


def assert_same_bits(one: Tensor, other: Tensor) -> None:
    assert one.shape == other.shape
    assert one.dtype == other.dtype
    different = bits(one) != bits(other)
    assert not different.any(), f"{one[different][:5]} and {other[different][:5]}, {int(different.sum())} in all"


def outcome(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient; what the call overwrites is a copy."""
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    out = call(leaf.clone(memory_format=torch.preserve_format))
    return out, torch.autograd.grad(out, leaf, cotangent(out))[0]
