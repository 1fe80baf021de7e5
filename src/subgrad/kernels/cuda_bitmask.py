"""Bit masks on CUDA: the forward keeps one or two bits an entry, and the backward reads nothing else.

For piecewise linear operators of one tensor, and for the larger or smaller of two. The numbers are torch's own to the
bit; the memory held for the backward is an 8th or a 4th of a byte an entry, where torch keeps the input. For eager
code: a compiled graph is fused by Inductor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, reduce
from math import isnan, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply import dispatch, executors
from subgrad.apply.autograd_nodes import Gate, is_memory
from subgrad.apply.call import Arguments, Call
from subgrad.apply.executors import Run
from subgrad.apply.operators import operator
from subgrad.apply.plan import Plan
from subgrad.kernels.bit_planes import Codes
from subgrad.kernels.native import build
from subgrad.kernels.piecewise import (
    BETWEEN_TENSORS,
    ONE,
    STRAIGHT,
    ZERO,
    Coding,
    Weight,
    as_bits,
    coding_of,
    only_given,
    rows_between,
)
from subgrad.kernels.triton_launch import Compiled, compiled, launch, triton_kernels
from subgrad.kinks.overloads import overload

MODES = ("auto", "always", "never")
# From so many entries on a mask is faster than torch's own backward, which reads the input; what is smaller waits for
# its launch, in Python longer than in C++.
SMALLEST, SMALLEST_IN_PYTHON = 1 << 22, 1 << 24
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Given = tuple[tuple[Tensor, ...], tuple[int, ...], tuple[Any, ...]]  # tensors, numbers and constants of a kernel
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides

_mode = "auto"


def set_packed(mode: str) -> None:
    """Where bit masks are used on CUDA, for this process.

    Args:
        mode: ``"auto"`` where they win, which is not where torch keeps the result, as of `relu`; ``"always"`` where
            they can; ``"never"``. At first what the variable ``SUBGRAD_PACKED`` says, else ``"auto"``. The gradients
            are the same.
    """
    global _mode
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r} of packed masks. Known: {', '.join(MODES)}.")
    _mode = mode
    dispatch.ask_again()


def smallest() -> int:
    """From this size on bit masks are used where torch's own kernels would do."""
    if _mode == "auto":
        return SMALLEST if build.is_used() else SMALLEST_IN_PYTHON
    return 1 if _mode == "always" else sys.maxsize


@dataclass(frozen=True)
class Mask:
    """What a call computes, where its kinks are, and how regions are coded.

    Attributes:
        other: the second operand: "none", "number" for one on the device, or "tensor".
    """

    value: str
    numbers: tuple[float, float, float]
    coding: Coding
    other: str = "none"

    @cached_property
    def bits_of_numbers(self) -> tuple[int, ...]:
        return tuple(as_bits(number) for number in self.numbers)

    @cached_property
    def constants(self) -> tuple[Any, ...]:
        """What the kernel `code` is compiled for."""
        return self.value, self.other, self.coding.corners, *self.coding.regions, self.coding.bits


class CudaBitmask:
    """See `Executor`."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        x, op = call.args[0], call.op.op
        if not plan.meetings or not (op in STRAIGHT or rows_between(op)) or forward_ad._current_level >= 0:
            return None
        is_large = isinstance(x.numel(), int) and x.numel() >= smallest()
        if plan.is_native and not (is_large and self._gains(call.form)):
            return None
        if not x.is_cuda or _mode == "never" or x.dtype not in DTYPES or not is_memory(x) or triton_kernels() is None:
            return None
        if op in STRAIGHT:
            mask = mask_of(plan, call.arguments, op)
            return mask and partial(_run_in_place if call.in_place else _run, mask)
        return None if call.in_place else _Selection(plan, call)

    def gains(self, op: str, key: str) -> bool:
        forms = filter(None, (op, operator(op).in_place))
        return key == "AutogradCUDA" and any(map(self._gains, forms))

    def _gains(self, form: str) -> bool:
        if form in {op for op, _ in BETWEEN_TENSORS}:
            return True
        is_straight = form in STRAIGHT or form in {operator(op).in_place for op in STRAIGHT}
        return is_straight and (_mode == "always" or not keeps_result(form))


@cache
def keeps_result(form: str) -> bool:
    """Whether torch differentiates an operator of one tensor from its result, which the next layer keeps as well.

    A mask would then be kept besides, and spare nothing.
    """
    called = overload(form)
    numbers = [1.0 if each.default_value is None else each.default_value for each in called._schema.arguments[1:]]
    with torch.enable_grad(), torch.inference_mode(False):
        out = called(torch.ones(1, requires_grad=True).clone(), *numbers)
    return hasattr(out.grad_fn, "_saved_result")


def mask_of(plan: Plan, arguments: Arguments, op: str) -> Mask | None:
    """Of an operator of one tensor; None for bounds that are nan, and where the table cannot say what torch does."""
    row = STRAIGHT[op]
    numbers = row.numbers(arguments)
    if any(isnan(number) for number in numbers):
        return None
    coding = coding_of(row, plan, arguments, ("self",))
    return coding and Mask(row.value(arguments), numbers, coding)


def _run(mask: Mask, call: Call) -> Any:
    x = call.args[0]
    if not x.numel():
        return NotImplemented
    return _Masked.apply(x if is_dense(x) else torch.empty_like(x).copy_(x), None, mask, True)[0]


def _run_in_place(mask: Mask, call: Call) -> Any:
    """Not for views and leaves, whose errors and histories are torch's own affair."""
    x = call.args[0]
    if x.is_leaf or x._is_view() or not is_dense(x) or not x.numel():
        return NotImplemented
    return _MaskedInPlace.apply(x, mask)[0]


class _Selection:
    """The larger or smaller of two tensors of one shape, or of a tensor and a constant."""

    def __init__(self, plan: Plan, call: Call):
        self.plan, self.rows = plan, rows_between(call.op.op)
        self.masks: dict[tuple[str, str], Mask | None] = {}

    def __call__(self, call: Call) -> Any:
        arguments = call.arguments
        second = only_given(self.rows, arguments)
        if second is None:
            return NotImplemented
        x, other = arguments["self"], arguments[second]
        kind = _kind(x, other, second in self.plan.names)
        if kind is None or not x.numel() or not is_memory(other):
            return NotImplemented
        if (second, kind) not in self.masks:
            operands = tuple(name for name in ("self", second) if name in self.plan.names)
            row, coding = self.rows[second], coding_of(self.rows[second], self.plan, arguments, operands)
            self.masks[second, kind] = coding and Mask(row.value(arguments), row.numbers(arguments), coding, kind)
        mask = self.masks[second, kind]
        if mask is None:
            return NotImplemented
        if not is_dense(x):
            x = torch.empty_like(x).copy_(x)
        return _Masked.apply(x, other, mask, "self" in self.plan.names)[0]


def _kind(x: Tensor, other: Tensor, is_differentiated: bool) -> str | None:
    if other.device != x.device:
        return None
    if not other.ndim and x.ndim and other.is_floating_point() and not is_differentiated:
        return "number"
    is_alike = other.shape == x.shape and other.stride() == x.stride() and other.dtype is x.dtype
    return "tensor" if is_alike and is_dense(x) else None


def is_dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)


class _Masked(Gate):
    """The operator's value, with a backward from codes.

    The second result, an empty tensor, depends on the operands: with it second derivatives are zeros, not missing.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, other: Tensor | None, mask: Mask, first_is_differentiated: bool) -> Any:
        out = torch.empty_like(x)
        ctx.first_is_differentiated, ctx.like = first_is_differentiated, [(x.shape, x.dtype, x.device)]
        if other is not None:
            ctx.like.append((other.shape, other.dtype, other.device))
        return _remember(ctx, mask, out, write(mask, x, other, out))

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if cotangent is None:
            zeros = [
                _zeros(*like) if needed else None for like, needed in zip(ctx.like, ctx.needs_input_grad, strict=False)
            ]
            return zeros[0], zeros[1] if len(zeros) > 1 else None, None, None
        found = _recalled(ctx, cotangent)
        both = found if len(found) == 2 else (*found, None) if ctx.first_is_differentiated else (None, *found)
        return *both, None, None


class _MaskedInPlace(Gate):
    """The same written over the input, of which no copy is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Any:
        ctx.mark_dirty(x)
        ctx.like = (x.shape, x.dtype, x.device)
        return _remember(ctx, mask, x, write(mask, x, None, x))

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        return (*(_recalled(ctx, cotangent) if cotangent is not None else [_zeros(*ctx.like)]), None)


class _Weighed(Gate):
    """A backward that is differentiated again: linear in the cotangent, and constant in the operands."""

    @staticmethod
    def forward(ctx: Any, cotangent: Tensor, anchor: Tensor, codes: Tensor, coding: Coding, layout: Layout) -> Any:
        ctx.coding, ctx.layout, ctx.anchor = coding, layout, anchor
        ctx.save_for_backward(codes)
        return _weigh(coding, cotangent, codes, layout)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (codes,) = ctx.saved_tensors
        of_operands = (
            _Weighed.apply(cotangent, ctx.anchor, codes, _of_operand(ctx.coding, index), ctx.layout)[0]
            for index, cotangent in enumerate(cotangents)
        )
        return reduce(torch.add, of_operands), torch.zeros_like(ctx.anchor), None, None, None


def _of_operand(coding: Coding, index: int) -> Coding:
    return replace(coding, weights=(coding.weights[index],))


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


def _remember(ctx: Any, mask: Mask, out: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    anchor = torch.empty(0)  # on the CPU, where that costs least
    ctx.coding, ctx.layout = mask.coding, (out.shape, out.stride())
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(codes, anchor)
    return out, anchor


def _recalled(ctx: Any, cotangent: Tensor) -> tuple[Tensor, ...]:
    codes, anchor = ctx.saved_tensors
    return weighed(ctx.coding, cotangent, codes, anchor, ctx.layout)


def weighed(coding: Coding, cotangent: Tensor, codes: Tensor, anchor: Tensor, layout: Layout) -> tuple[Tensor, ...]:
    """The gradients of the operands; differentiable, where gradients are."""
    if torch.is_grad_enabled():
        return _Weighed.apply(cotangent, anchor, codes, coding, layout)
    return _weigh(coding, cotangent, codes, layout)


def write(mask: Mask, x: Tensor, other: Tensor | None, out: Tensor) -> Tensor:
    """Write the operator's value, and return the codes."""
    lying = _lying(mask.coding, x.numel(), x)
    codes = torch.empty(lying.bytes, dtype=torch.uint8, device=x.device)
    launch("code", lying.blocks, *_writing(mask, x, other, out, codes))
    return codes


def _writing(mask: Mask, x: Tensor, other: Tensor | None, out: Tensor, codes: Tensor) -> Given:
    tensors, lying = (x, x if other is None else other, out, codes), _lying(mask.coding, x.numel(), x)
    return tensors, (x.numel(), *mask.bits_of_numbers), (*mask.constants, lying.unit, lying.block)


def _weigh(coding: Coding, cotangent: Tensor, codes: Tensor, layout: Layout) -> tuple[Tensor, ...]:
    # Dynamo, for compiled autograd, takes what it traces for plain tensors.
    if torch.compiler.is_compiling() or not is_memory(cotangent) or not cotangent.is_cuda:
        return tuple(_weigh_by_torch(coding, weights, cotangent, codes, layout) for weights in coding.weights)
    shape, stride = layout
    if cotangent.stride() != stride:
        cotangent = cotangent.new_empty_strided(shape, stride).copy_(cotangent)
    outs = tuple(torch.empty_like(cotangent) for _ in coding.weights)
    block = _lying(coding, cotangent.numel(), cotangent).block_for(len(outs))
    launch("weigh", -(-cotangent.numel() // block), *_weighing(coding, cotangent, codes, outs))
    return outs


def _weighing(coding: Coding, cotangent: Tensor, codes: Tensor, outs: tuple[Tensor, ...]) -> Given:
    tensors, lying = (cotangent, codes, outs[0], outs[-1]), _lying(coding, cotangent.numel(), cotangent)
    constants = (*coding.constants, lying.unit, lying.block_for(len(outs)))
    return tensors, (cotangent.numel(), *coding.numbers), constants


def _lying(coding: Coding, size: int, x: Tensor) -> Codes:
    return Codes(coding.bits, coding.has_flags, size, x.element_size())


def _weigh_by_torch(
    coding: Coding, weights: Sequence[Weight], cotangent: Tensor, codes: Tensor, layout: Layout
) -> Tensor:
    """The same with torch's operators, for cotangents that are traced, batched or dual."""
    code = _lying(coding, prod(layout[0]), cotangent).unpacked(codes).as_strided(*layout)
    found = torch.zeros_like(cotangent)
    for number, weight in enumerate(weights):
        if weight.kind != ZERO:
            part = cotangent if weight.kind == ONE else cotangent * weight.number
            found = torch.where(code == number, part, found)
    return found


# For the fast path, which launches the kernels itself where it can, and knows codings by their numbers.
_codings: list[Coding] = []


class Packing(NamedTuple):
    """A mask of an operator of one tensor.

    Attributes:
        write: the kernel for the input, twice, the result, and codes.
        weigh: the kernel for the cotangent, codes, and the gradient, twice.
        in_python: the gradient, from the coding's number and all that was kept.
        coding: its number.
        bits: of a code; of two there are two planes, and a flag for each block.
    """

    write: Compiled
    weigh: Compiled
    in_python: Callable[..., Tensor]
    coding: int
    bits: int


def packing_of(run: Run, like: Tensor) -> Packing | None:
    """The kernels that write and weigh codes, for tensors like this one; None for what they are not made for."""
    if not isinstance(run, partial) or run.func not in (_run, _run_in_place):
        return None
    if torch.cuda.is_current_stream_capturing():  # what is compiled would be captured
        return None
    (mask,) = run.args
    with torch.no_grad():
        x, out = (torch.zeros(4096, dtype=like.dtype, device=like.device) for _ in range(2))
        codes = torch.zeros(_lying(mask.coding, 4096, x).bytes, dtype=torch.uint8, device=like.device)
        writes = compiled("code", *_writing(mask, x, None, out, codes))
        weighs = compiled("weigh", *_weighing(mask.coding, x, codes, (out,)))
    if writes is None or weighs is None:
        return None
    return Packing(writes, weighs, _weighed_by_number, _number_of(mask.coding), mask.coding.bits)


@cache
def _number_of(coding: Coding) -> int:
    _codings.append(coding)
    return len(_codings) - 1


def _weighed_by_number(
    number: int, cotangent: Tensor, codes: Tensor, anchor: Tensor, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    (gradient,) = weighed(_codings[number], cotangent, codes, anchor, (shape, stride))
    return gradient


executors.split_sizes_at(smallest)
set_packed(os.environ.get("SUBGRAD_PACKED", "auto"))
