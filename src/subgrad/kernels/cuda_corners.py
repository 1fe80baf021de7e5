"""On CUDA, operators that are curved between their kinks: torch's own backward, mended at the kinks by one kernel.

The input is kept, as torch keeps it. The kernel reads it, and the cotangent only where an entry lies on a kink. The C++
part does the same, on the CPU as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, below_autograd, is_memory, laid_out
from subgrad.apply.call import Arguments, Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.plan import Plan
from subgrad.apply.strong_zero.table import has_finite_slope
from subgrad.kernels.cuda_bitmask import DTYPES, MOST_SIZES, is_dense, keeps_result
from subgrad.kernels.piecewise import Weight, as_bits
from subgrad.kernels.triton_launch import Compiled, Launch, triton_kernels
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.autograd import forward_level
from subgrad.torch_internals.tensors import is_view

aten = torch.ops.aten
# Torch's own derivatives, of the cotangent, the input, and the other arguments.
BACKWARD: Mapping[str, Callable[[Tensor, Tensor, Arguments], Tensor]] = {
    "hardswish": lambda cotangent, x, _: aten.hardswish_backward(cotangent, x),
    "elu": lambda cotangent, x, given: aten.elu_backward(
        cotangent, given["alpha"], given["scale"], given["input_scale"], False, x
    ),
}
_BLOCK = 1024


class CudaCorners(Executor):
    """See `Executor`. For operators of one tensor with one kink or two, and numbers for elements."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        if not call.args[0].is_cuda or triton_kernels() is None:
            return None
        curve = curve_of(plan, call)
        return curve and partial(_run, curve)


def curve_of(plan: Plan, call: Call) -> Curve | None:
    """The derivative of a call, on any device; None for other operators, elements and tensors."""
    x = call.args[0]
    if call.op.base_name not in BACKWARD or not 1 <= len(plan.choices) <= 2 or forward_level() >= 0:
        return None
    if x.dtype not in DTYPES or not is_memory(x):
        return None
    # Strong zeros are a matter of torch's own node, and not of the one that is put in its place.
    if call.convention.strong_zero and not has_finite_slope(call.op.base_name, call.args):
        return None
    if call.in_place and keeps_result(call.form):  # from which torch's own derivative rounds otherwise
        return None
    if any(each.weights["self"] is None or each.require_inside is not None for each in plan.choices):
        return None
    return Curve(plan, call)


class Curve:
    """The derivative of calls with the same numbers."""

    def __init__(self, plan: Plan, call: Call):
        base, given = call.op.base(call.arguments)
        self.given = {name: each for name, each in given.items() if name != "self"}
        self.backward, self.choices = BACKWARD[base.op], plan.choices
        self.places = [
            meeting.spot.kink.place_value(call.arguments) for meeting in plan.meetings if meeting.choice is not None
        ]
        self.weights = [Weight.exact(float(choice.weights["self"] or 0.0)) for choice in plan.choices]

    def gradient(self, cotangent: Tensor, x: Tensor) -> Tensor:
        """On CUDA."""
        is_plain = is_memory(cotangent) and not torch.is_grad_enabled() and not torch.compiler.is_compiling()
        if is_plain and is_dense(x) and x.stride() == cotangent.stride() and x.numel():
            found = self.backward(cotangent, x, self.given)
            if found.stride() == x.stride():
                _mending(self, x.numel())(found, x.detach(), cotangent)
                return found
        return self.by_operators(cotangent, x)

    def by_operators(self, cotangent: Tensor, x: Tensor) -> Tensor:
        """The same of torch's operators, on any device, and to be differentiated."""
        hits = [choice.hits({**self.given, "self": x}) for choice in self.choices]
        if torch.is_grad_enabled():  # else an infinite cotangent would make nan of the zero that a second derivative is
            x = laid_out(torch.where(reduce(torch.logical_or, hits), x.detach(), x), x)
        own = found = self.backward(cotangent, x, self.given)
        for hit, weight in zip(hits, self.weights, strict=True):
            found = torch.where(hit, cotangent * weight.number if weight.number else 0.0, found)
        return laid_out(found, own)


class Mending(NamedTuple):
    """A curve, for the C++ part.

    Attributes:
        numbers: of `elu`; none of `hardswish`.
        corners: the places and weights of two kinks, a single one given twice.
        kernel: for a gradient, the input and the cotangent on CUDA; None on the CPU.
        in_python: the gradient, from the cotangent and the input.
    """

    numbers: tuple[float, ...]
    corners: list[tuple[float, float]]
    kernel: Compiled | None
    in_python: Callable[[Tensor, Tensor], Tensor]


def mending_of(curve: Curve, like: Tensor) -> Mending | None:
    """For tensors like this one; None for what it is not made for."""
    numbers = tuple(curve.given[name] for name in ("alpha", "scale", "input_scale") if name in curve.given)
    corners = [(place, weight.number) for place, weight in zip(curve.places, curve.weights, strict=True)]
    if like.is_cpu:
        kernel = None
    else:
        zeros = [torch.zeros(4 * _BLOCK, dtype=like.dtype, device=like.device) for _ in range(3)]
        kernel = _mending(curve, 4 * _BLOCK).compiled(*zeros, for_any_size=True)
    if kernel is None and (like.is_cuda or like.dtype not in (torch.float32, torch.float64)):
        return None
    return Mending(numbers, (corners * 2)[:2], kernel, curve.by_operators if like.is_cpu else curve.gradient)


@lru_cache(maxsize=MOST_SIZES)
def _mending(curve: Curve, size: int) -> Launch:
    """The kernel for tensors of one size; a single kink is given twice."""
    places, weights = (curve.places * 2)[:2], (curve.weights * 2)[:2]
    numbers = [as_bits(each) for each in (*places, *(weight.number for weight in weights))]
    return Launch("mend", -(-size // _BLOCK), (size, *numbers), (*(weight.kind for weight in weights), _BLOCK))


def _run(curve: Curve, call: Call) -> Any:
    x = call.args[0]
    if not call.in_place:
        return _Mended.apply(x, None, curve, call)
    if x.is_leaf or is_view(x):  # errors and histories that are torch's own affair
        return NotImplemented
    return _Mended.apply(x, x.clone(), curve, call)


class _Mended(Gate):
    """The operator's value. ``kept`` is a copy of the input where the value is written over it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor | None, curve: Curve, call: Call) -> Tensor:
        ctx.curve = curve
        ctx.save_for_backward(x if kept is None else kept)
        out = below_autograd(overload(call.form), *call.op.args(call.arguments))
        if kept is None:
            return out
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        return ctx.curve.gradient(cotangent, x), None, None, None
