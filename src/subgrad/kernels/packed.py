"""Packed masks: on CUDA the forward keeps one or two bits an entry, and the backward reads nothing else.

The numbers are torch's own to the bit; the memory held for the backward is an 8th or a 4th of a byte an entry. They are
for eager code: a compiled graph is fused by Inductor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from math import prod
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import dispatch
from subgrad.apply.gates import Gate, is_memory
from subgrad.kernels import front
from subgrad.kernels.codes import Codes
from subgrad.kernels.launch import Compiled, compiled, launch, triton_kernels
from subgrad.kernels.pieces import ONE, ZERO, Coding, Weight, as_bits

MODES = ("auto", "always", "never")
# A training step of MobileNetV2 is fastest, and least in memory, with all packed from 2^16 to 2^23 entries on
# (docs/speed.md); alone, what is smaller waits for its launch.
SMALLEST = 1 << 22
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Given = tuple[tuple[Tensor, ...], tuple[int, ...], tuple[Any, ...]]  # tensors, numbers and constants of a kernel
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides

_mode = "auto"


def set_packed(mode: str) -> None:
    """Where packed masks are used on CUDA, for this process.

    Args:
        mode: ``"auto"`` where they win, which is not where torch keeps the result, as of `relu`; ``"always"`` where
            they can; ``"never"``. At first what the variable ``SUBGRAD_PACKED`` says, else ``"auto"``. The gradients
            are the same.
    """
    global _mode
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r} of packed masks. Known: {', '.join(MODES)}.")
    _mode = mode
    front.forget_notes()
    dispatch.ask_again()


def is_forced() -> bool:
    return _mode == "always"


def smallest() -> int:
    """From this size on packed masks are used where torch's own kernels would do."""
    return SMALLEST if _mode == "auto" else 1 if _mode == "always" else sys.maxsize


def fits(tensor: Tensor, needed: bool) -> bool:
    """Whether to pack a call on this tensor; ``needed`` if torch's own kernels would not do."""
    if not tensor.is_cuda or _mode == "never" or tensor.dtype not in DTYPES or triton_kernels() is None:
        return False
    size = tensor.numel()
    return size > 0 and (needed or size >= smallest()) and is_memory(tensor)


@dataclass(frozen=True)
class Call:
    """One call: what it computes, where its kinks are, and how regions are coded."""

    value: str
    numbers: tuple[float, float, float]
    coding: Coding
    other: str  # "none", "number" for one on the device, or "tensor"

    @cached_property
    def bits_of_numbers(self) -> tuple[int, ...]:
        return tuple(as_bits(number) for number in self.numbers)

    @cached_property
    def constants(self) -> tuple[Any, ...]:
        """What the kernel `code` is compiled for."""
        return self.value, self.other, self.coding.corners, *self.coding.regions, self.coding.bits


def pack(call: Call, x: Tensor, other: Tensor | None, first_is_differentiated: bool) -> Tensor:
    """The operator's value, with a backward from codes."""
    return _apply(_Packed, x, other, (anchored(x, other),), call, first_is_differentiated)


def pack_in_place(call: Call, x: Tensor) -> Tensor:
    """The same written over the input, of which no copy is kept."""
    return _apply(_PackedInPlace, x, (anchored(x),), call)


def anchored(*operands: Tensor | None) -> Tensor:
    """An empty tensor tied to the operands, so that second derivatives with respect to them are zeros, not None."""
    return _apply(_Anchor, *operands)


def _apply(gate: Any, *args: Any) -> Any:
    return gate.apply(*args)


def is_dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)


class _Packed(Gate):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, other: Tensor | None, anchor: tuple[Tensor], call: Call, first_is_differentiated: bool
    ) -> Tensor:
        if not is_dense(x):
            x = torch.empty_like(x).copy_(x)
        out = torch.empty_like(x)
        ctx.first_is_differentiated = first_is_differentiated
        _remember(ctx, call, out, anchor, write(call, x, other, out))
        return out

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        found = _recalled(ctx, cotangent)
        both = found if len(found) == 2 else (*found, None) if ctx.first_is_differentiated else (None, *found)
        return *both, None, None, None


class _PackedInPlace(Gate):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: tuple[Tensor], call: Call) -> Tensor:
        ctx.mark_dirty(x)
        _remember(ctx, call, x, anchor, write(call, x, None, x))
        return x

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return *_recalled(ctx, cotangent), None, None


class _Anchor(Gate):
    """Nothing, on which operands depend all the same: second derivatives with respect to them are zero, not missing."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor | None) -> Tensor:
        ctx.layouts = [None if x is None else (x.shape, x.dtype, x.device) for x in operands]
        return torch.empty(0)  # on the CPU, where that costs least

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(
            torch.zeros(layout[0], dtype=layout[1], device=layout[2]) if layout and is_needed else None
            for layout, is_needed in zip(ctx.layouts, ctx.needs_input_grad, strict=True)
        )


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
            _apply(_Weighed, cotangent, ctx.anchor, codes, _of_operand(ctx.coding, index), ctx.layout)[0]
            for index, cotangent in enumerate(cotangents)
        )
        return reduce(torch.add, of_operands), torch.zeros_like(ctx.anchor), None, None, None


def _of_operand(coding: Coding, index: int) -> Coding:
    return replace(coding, weights=(coding.weights[index],))


def _remember(ctx: Any, call: Call, out: Tensor, anchor: tuple[Tensor], codes: Tensor) -> None:
    """``anchor`` comes in a tuple, so that it is no input whose derivative hooks would see."""
    ctx.coding, ctx.layout, (ctx.anchor,) = call.coding, (out.shape, out.stride()), anchor
    ctx.save_for_backward(codes)


def _recalled(ctx: Any, cotangent: Tensor) -> tuple[Tensor, ...]:
    (codes,) = ctx.saved_tensors
    return weighed(ctx.coding, cotangent, codes, ctx.anchor, ctx.layout)


def weighed(coding: Coding, cotangent: Tensor, codes: Tensor, anchor: Tensor, layout: Layout) -> tuple[Tensor, ...]:
    """The gradients of the operands; differentiable, where gradients are."""
    if torch.is_grad_enabled():
        return _apply(_Weighed, cotangent, anchor, codes, coding, layout)
    return _weigh(coding, cotangent, codes, layout)


def write(call: Call, x: Tensor, other: Tensor | None, out: Tensor) -> Tensor:
    """Write the operator's value, and return the codes."""
    lying = _lying(call.coding, x.numel(), x)
    codes = torch.empty(lying.bytes, dtype=torch.uint8, device=x.device)
    launch("code", lying.blocks, *_writing(call, x, other, out, codes))
    return codes


def _writing(call: Call, x: Tensor, other: Tensor | None, out: Tensor, codes: Tensor) -> Given:
    tensors, lying = (x, x if other is None else other, out, codes), _lying(call.coding, x.numel(), x)
    return tensors, (x.numel(), *call.bits_of_numbers), (*call.constants, lying.unit, lying.block)


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


# For the front, which launches the kernels itself where it can, and knows codings by their numbers.
_codings: list[Coding] = []


@cache
def number_of(coding: Coding) -> int:
    _codings.append(coding)
    return len(_codings) - 1


def compiled_for(call: Call, like: Tensor) -> tuple[Compiled, Compiled] | None:
    """The kernels that write and weigh codes, for tensors like this one."""
    if torch.cuda.is_current_stream_capturing():  # what is compiled would be captured
        return None
    with torch.no_grad():
        x, out = (torch.zeros(1024, dtype=like.dtype, device=like.device) for _ in range(2))
        codes = torch.zeros(128, dtype=torch.uint8, device=like.device)
        writes = compiled("code", *_writing(call, x, None, out, codes))
        weighs = compiled("weigh", *_weighing(call.coding, x, codes, (out,)))
    return None if writes is None or weighs is None else (writes, weighs)


def weighed_by_number(
    number: int, cotangent: Tensor, codes: Tensor, anchor: Tensor, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    (gradient,) = weighed(_codings[number], cotangent, codes, anchor, (shape, stride))
    return gradient


set_packed(os.environ.get("SUBGRAD_PACKED", "auto"))
