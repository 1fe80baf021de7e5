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
from math import isnan
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply import dispatch, executors
from subgrad.apply.autograd_nodes import Gate, is_memory
from subgrad.apply.call import Arguments, Call
from subgrad.apply.current_pass import running
from subgrad.apply.executors import Run
from subgrad.apply.operators import operator
from subgrad.apply.plan import Plan
from subgrad.apply.scopes import Scope
from subgrad.conventions import Convention
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
from subgrad.kernels.triton_launch import Compiled, Launch, triton_kernels
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.autograd import forward_level, has_saved_result
from subgrad.torch_internals.dispatcher import schema_of
from subgrad.torch_internals.tensors import is_view

MODES = ("auto", "always", "never")
# From so many entries on a mask is faster than torch's own backward, which reads the input; what is smaller waits for
# its launch. Python takes longer to launch both ways than a mask spares, so that there torch's own stays.
SMALLEST = 1 << 22
MOST_SIZES = 256  # of tensors, for which kernels are kept at hand
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides

_mode = "auto"


def set_packed(mode: str) -> None:
    """Where bit masks are used on CUDA, for this process.

    Args:
        mode: ``"auto"`` where they win; where torch gives the chosen gradient too, that is with the C++ part, and not
            where torch keeps the result, as of `relu`. ``"always"`` where they can; ``"never"``. At first what the
            variable ``SUBGRAD_PACKED`` says, else ``"auto"``. The gradients are the same.
    """
    global _mode
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r} of packed masks. Known: {', '.join(MODES)}.")
    _mode = mode
    dispatch.ask_again()


def mode() -> str:
    """What was set, one of `MODES`."""
    return _mode


def smallest() -> int:
    """From this size on bit masks are used where torch's own kernels would do."""
    if _mode == "auto":
        return SMALLEST if build.is_used() else sys.maxsize
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
    def _sized(self) -> dict[tuple[Any, ...], Sized | None]:
        return {}

    def sized(self, x: Tensor, other: Tensor | None) -> Sized | None:
        """For tensors like these; None for what is empty, or not dense."""
        key = x.shape, x.stride(), x.dtype, x.device, None if other is None else other.dtype
        try:
            return self._sized[key]
        except KeyError:
            if len(self._sized) >= MOST_SIZES:
                self._sized.clear()
            return self._sized.setdefault(key, Sized.of(self, x) if is_dense(x) and x.numel() else None)


@dataclass(frozen=True)
class Sized:
    """A mask for tensors that lie alike: how codes lie, and the kernels that write and weigh them."""

    coding: Coding
    layout: Layout
    lying: Codes
    bytes: int
    write: Launch
    weigh: Launch

    @classmethod
    def of(cls, mask: Mask, x: Tensor) -> Sized:
        coding, size = mask.coding, x.numel()
        lying = Codes(coding.bits, coding.has_flags, size, x.element_size())
        numbers = (size, *(as_bits(number) for number in mask.numbers))
        constants = (mask.value, mask.other, coding.corners, *coding.regions, coding.bits, lying.unit, lying.block)
        write = Launch("code", lying.blocks, numbers, constants)
        return cls(coding, (x.shape, x.stride()), lying, lying.bytes, write, weighing(coding, lying))

    def of_operand(self, index: int) -> Sized:
        """The gradient of one operand of two."""
        coding = replace(self.coding, weights=(self.coding.weights[index],))
        return replace(self, coding=coding, weigh=weighing(coding, self.lying))


def weighing(coding: Coding, lying: Codes) -> Launch:
    block = lying.block_for(len(coding.weights))
    constants = (*coding.constants, lying.unit, block)
    return Launch("weigh", -(-lying.size // block), (lying.size, *coding.numbers), constants)


class CudaBitmask:
    """See `Executor`."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        x, op = call.args[0], call.op.op
        if not plan.meetings or not (op in STRAIGHT or rows_between(op)) or forward_level() >= 0:
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
        return key == "AutogradCUDA" and smallest() < sys.maxsize and any(map(self._gains, forms))

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
    numbers = [1.0 if each.default_value is None else each.default_value for each in schema_of(called).arguments[1:]]
    # No audit that is running counts this call.
    with running(None), Scope(Convention("torch")), torch.enable_grad(), torch.inference_mode(False):
        out = called(torch.ones(1, requires_grad=True).clone(), *numbers)
    return has_saved_result(out.grad_fn)


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
    sized = mask.sized(x, None)
    if sized is None:
        if not x.numel():
            return NotImplemented
        x = torch.empty_like(x).copy_(x)
        sized = mask.sized(x, None)
    return _Packed.apply(x, None, [anchor(x)], sized, True)


def _run_in_place(mask: Mask, call: Call) -> Any:
    """Not for views and leaves, whose errors and histories are torch's own affair."""
    x = call.args[0]
    sized = mask.sized(x, None)
    if sized is None or x.is_leaf or is_view(x):
        return NotImplemented
    return _PackedInPlace.apply(x, [anchor(x)], sized)


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
        sized, anchors = mask.sized(x, other), [anchor(each) for each in (x, other) if each.requires_grad]
        if sized is None:
            x = torch.empty_like(x).copy_(x)
            sized = mask.sized(x, other)
        return _Packed.apply(x, other, anchors, sized, "self" in self.plan.names)


def _kind(x: Tensor, other: Tensor, is_differentiated: bool) -> str | None:
    if other.device != x.device:
        return None
    if not other.ndim and x.ndim and other.is_floating_point() and not is_differentiated:
        return "number"
    is_alike = other.shape == x.shape and other.stride() == x.stride() and other.dtype is x.dtype
    return "tensor" if is_alike and is_dense(x) else None


def is_dense(tensor: Tensor) -> bool:
    if tensor.is_contiguous() or (tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)):
        return True
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)


def anchor(x: Tensor) -> Tensor:
    """An empty tensor that depends on an operand: with it second derivatives are zeros, not missing."""
    return x.repeat((0,) * (x.ndim or 1))


class _Packed(Gate):
    """The operator's value, with a backward from codes.

    Anchors come in a list, so that they are no inputs whose derivative hooks would see.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, other: Tensor | None, anchors: list[Tensor], sized: Sized, first_is_differentiated: bool
    ) -> Tensor:
        out = torch.empty_like(x)
        codes = torch.empty(sized.bytes, dtype=torch.uint8, device=x.device)
        sized.write(x, x if other is None else other, out, codes)
        ctx.kept = sized, anchors
        ctx.first_is_differentiated = first_is_differentiated
        ctx.save_for_backward(codes)
        return out

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        found = _gradients(ctx, cotangent)
        both = found if len(found) == 2 else (*found, None) if ctx.first_is_differentiated else (None, *found)
        return *both, None, None, None


class _PackedInPlace(Gate):
    """The same written over the input, of which no copy is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchors: list[Tensor], sized: Sized) -> Tensor:
        ctx.mark_dirty(x)
        codes = torch.empty(sized.bytes, dtype=torch.uint8, device=x.device)
        sized.write(x, x, x, codes)
        ctx.kept = sized, anchors
        ctx.save_for_backward(codes)
        return x

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return *_gradients(ctx, cotangent), None, None


def _gradients(ctx: Any, cotangent: Tensor) -> tuple[Tensor, ...]:
    (codes,), (sized, anchors) = ctx.saved_tensors, ctx.kept
    if torch.is_grad_enabled():
        return _Weighed.apply(cotangent, codes, sized, *anchors)
    return _weigh(sized, cotangent, codes)


class _Weighed(Gate):
    """A backward that is differentiated again: linear in the cotangent, and constant in the operands."""

    @staticmethod
    def forward(ctx: Any, cotangent: Tensor, codes: Tensor, sized: Sized, *anchors: Tensor) -> Any:
        ctx.kept = sized, anchors
        ctx.save_for_backward(codes)
        return _weigh(sized, cotangent, codes)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (codes,), (sized, anchors) = ctx.saved_tensors, ctx.kept
        of_operands = (
            _Weighed.apply(cotangent, codes, sized.of_operand(index), *anchors)[0]
            for index, cotangent in enumerate(cotangents)
        )
        return reduce(torch.add, of_operands), None, None, *map(torch.zeros_like, anchors)


def _weigh(sized: Sized, cotangent: Tensor, codes: Tensor) -> tuple[Tensor, ...]:
    # Dynamo, for compiled autograd, takes what it traces for plain tensors.
    if torch.compiler.is_dynamo_compiling() or not is_memory(cotangent) or not cotangent.is_cuda:
        return tuple(_weigh_by_torch(sized, each, cotangent, codes) for each in sized.coding.weights)
    shape, stride = sized.layout
    if cotangent.stride() != stride:
        cotangent = cotangent.new_empty_strided(shape, stride).copy_(cotangent)
    first = torch.empty_like(cotangent)
    if len(sized.coding.weights) == 1:
        sized.weigh(cotangent, codes, first, first)
        return (first,)
    second = torch.empty_like(cotangent)
    sized.weigh(cotangent, codes, first, second)
    return first, second


def _weigh_by_torch(sized: Sized, weights: Sequence[Weight], cotangent: Tensor, codes: Tensor) -> Tensor:
    """The same with torch's operators, for cotangents that are traced, batched or dual."""
    code = sized.lying.unpacked(codes).as_strided(*sized.layout)
    found = torch.zeros_like(cotangent)
    for number, weight in enumerate(weights):
        if weight.kind != ZERO:
            part = cotangent if weight.kind == ONE else cotangent * weight.number
            found = torch.where(code == number, part, found)
    return found


class Packing(NamedTuple):
    """A mask of an operator of one tensor, for the fast path, which launches the kernels itself where it can.

    Attributes:
        write: the kernel for the input, twice, the result, and codes.
        weigh: the kernel for the cotangent, codes, and the gradient, twice.
        in_python: the gradient, from the cotangent and all that was kept.
        bits: of a code; of two there are two planes, and a flag for each block.
    """

    write: Compiled
    weigh: Compiled
    in_python: Callable[..., Tensor]
    bits: int


def packing_of(run: Run, like: Tensor) -> Packing | None:
    """The kernels that write and weigh codes, for tensors like this one; None for what they are not made for."""
    if not isinstance(run, partial) or run.func not in (_run, _run_in_place):
        return None
    (mask,) = run.args
    with torch.no_grad():
        x, out = (torch.zeros(4096, dtype=like.dtype, device=like.device) for _ in range(2))
        sized = mask.sized(x, None)
        assert sized is not None
        codes = torch.zeros(sized.bytes, dtype=torch.uint8, device=like.device)
        writes = sized.write.compiled(x, x, out, codes, for_any_size=True)
        weighs = sized.weigh.compiled(x, codes, out, out, for_any_size=True)
    if writes is None or weighs is None:
        return None
    return Packing(writes, weighs, partial(_weighed_once_more, mask), mask.coding.bits)


def _weighed_once_more(
    mask: Mask, cotangent: Tensor, codes: Tensor, anchor: Tensor, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    """What the fast path leaves to Python. ``anchor`` is 0.0, whose derivative is zeros for the operator's input."""
    sized = mask.sized(torch.empty_strided(shape, stride, dtype=cotangent.dtype, device="meta"), None)
    assert sized is not None
    if not torch.is_grad_enabled():
        return _weigh(sized, cotangent, codes)[0]
    return _Weighed.apply(cotangent, codes, sized, anchor)[0]


executors.split_sizes_at(smallest)
set_packed(os.environ.get("SUBGRAD_PACKED", "auto"))
