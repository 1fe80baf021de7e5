"""Which shortcut serves which operator on which backend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf, isnan
from sys import maxsize

import torch
from torch import Tensor

from subgrad.apply import shortcuts
from subgrad.apply.gates import is_memory
from subgrad.apply.operators import operator
from subgrad.apply.plan import Plan
from subgrad.apply.rule import Arguments
from subgrad.apply.shortcuts import Originals
from subgrad.kernels import packed
from subgrad.kernels.front import Packing, fronts
from subgrad.kernels.fused import Fused
from subgrad.kernels.lowered import Bounded, BoundedInPlace, Selection
from subgrad.kernels.masked import Mask
from subgrad.kernels.nudged import FAMILY, Bounds, moved_bounds, nudged, nudged_in_place
from subgrad.kernels.pieces import BETWEEN_TENSORS, STRAIGHT, Straight, coding_of, only_given, rows_between
from subgrad.kernels.windows import OnCuda
from subgrad.kernels.written import written
from subgrad.kinks.overloads import overload

_SELF = ("self",)


@dataclass(frozen=True)
class Packed:
    """A packed mask for an operator of one tensor."""

    op: str
    row: Straight

    def pays_from(self, plan: Plan) -> int:
        return packed.smallest() if self.ever_pays() else maxsize

    def ever_pays(self) -> bool:
        return packed.is_forced() or not keeps_result(self.form)

    @property
    def form(self) -> str:
        return self.op

    def __call__(self, plan: Plan, arguments: Arguments, originals: Originals) -> Tensor | None:
        call, x = self.call(plan, arguments), arguments["self"]
        if call is None:
            return None
        if x.numel() >= packed.smallest():
            return packed.pack(call, x, None, True)
        bounds = self.moved_bounds(plan, arguments)
        if bounds is not None:
            return nudged(self.op, bounds, arguments, originals)
        mask = _mask(plan, call)
        if mask is None:
            return packed.pack(call, x, None, True)
        return written(mask.select(x, *call.numbers[:2]), self.op, arguments)

    def call(self, plan: Plan, arguments: Arguments) -> packed.Call | None:
        if not packed.fits(arguments["self"], bool(plan.choices)):
            return None
        if "call" not in plan.notes:
            numbers = self.row.numbers(arguments)
            is_known = not any(isnan(number) for number in numbers)
            coding = coding_of(self.row, plan, arguments, _SELF) if is_known else None
            plan.notes["call"] = coding and packed.Call(self.row.value(arguments), numbers, coding, "none")
        return plan.notes["call"]

    def packing(self, plan: Plan, arguments: Arguments) -> Packing | None:
        """For the front; None for more than a mask, of which there are few, and for a size that 16 does not divide."""
        call, x = self.call(plan, arguments), arguments["self"]
        if call is None or x.numel() % 16 or _mask(plan, call) is None:
            return None
        name = f"packing on {x.device}"
        if name not in plan.notes:
            kernels = packed.compiled_for(call, x)
            number = packed.number_of(call.coding)
            plan.notes[name] = kernels and Packing(*kernels, packed.weighed_by_number, number)
        return plan.notes[name]

    def moved_bounds(self, plan: Plan, arguments: Arguments) -> Bounds | None:
        if self.op not in FAMILY:
            return None
        if "bounds" not in plan.notes:
            plan.notes["bounds"] = moved_bounds(plan, arguments)
        return plan.notes["bounds"]


class PackedInPlace(Packed):
    """The same over its input; not for views and leaves, whose errors and histories are torch's own affair."""

    @property
    def form(self) -> str:
        return operator(self.op).in_place or self.op

    def __call__(self, plan: Plan, arguments: Arguments, originals: Originals) -> Tensor | None:
        x = arguments["self"]
        if x.is_leaf or x._is_view() or not packed.is_dense(x):
            return None
        call = self.call(plan, arguments)
        if call is None:
            return None
        bounds = self.moved_bounds(plan, arguments) if x.numel() < packed.smallest() else None
        if bounds is not None:
            return nudged_in_place(self.op, bounds, arguments, originals)
        return packed.pack_in_place(call, x)


@dataclass(frozen=True)
class PackedSelection:
    """A packed mask for the larger or smaller of two tensors of one shape, or of a tensor and a constant."""

    op: str
    rows: dict[str, Straight]  # by the name of the second tensor, if it may be one or another

    def pays_from(self, plan: Plan) -> int:
        return packed.smallest()

    def ever_pays(self) -> bool:
        return True

    def __call__(self, plan: Plan, arguments: Arguments, originals: Originals) -> Tensor | None:
        second = only_given(self.rows, arguments)
        if second is None:
            return None
        x, other, row = arguments["self"], arguments[second], self.rows[second]
        kind = _kind(x, other, second in plan.names)
        if kind is None or not packed.fits(x, bool(plan.choices)) or not is_memory(other):
            return None
        if kind not in plan.notes:
            operands = tuple(name for name in ("self", second) if name in plan.names)
            coding = coding_of(row, plan, arguments, operands)
            numbers = row.numbers(arguments)
            plan.notes[kind] = coding and packed.Call(row.value(arguments), numbers, coding, kind)
        call = plan.notes[kind]
        if call is None:
            return None
        is_small = plan.names == {"self"} and x.numel() < packed.smallest()
        mask = _mask(plan, call) if is_small else None
        if mask is None:
            return packed.pack(call, x, other, "self" in plan.names)
        return written(mask.select(x, other, inf), self.op, arguments)


@cache
def keeps_result(form: str) -> bool:
    """Whether torch differentiates an operator of one tensor from its result, which the next layer keeps as well.

    A packed mask would then be kept besides, and spare nothing.
    """
    called = overload(form)
    numbers = [1.0 if each.default_value is None else each.default_value for each in called._schema.arguments[1:]]
    with torch.enable_grad(), torch.inference_mode(False):
        out = called(torch.ones(1, requires_grad=True).clone(), *numbers)
    return hasattr(out.grad_fn, "_saved_result")


def _mask(plan: Plan, call: packed.Call) -> Mask | None:
    if "mask" not in plan.notes:
        plan.notes["mask"] = Mask.of(call.coding, plan)
    return plan.notes["mask"]


def _kind(x: Tensor, other: Tensor, is_differentiated: bool) -> str | None:
    if other.device != x.device:
        return None
    if not other.ndim and x.ndim and other.is_floating_point() and not is_differentiated:
        return "number"
    is_alike = other.shape == x.shape and other.stride() == x.stride() and other.dtype is x.dtype
    return "tensor" if is_alike and packed.is_dense(x) else None


def offer_all() -> None:
    """Called when `subgrad` is imported, before any kernel is registered."""
    for op, row in STRAIGHT.items():
        shortcuts.offer(op, "AutogradCUDA", Packed(op, row), PackedInPlace(op, row))
        shortcuts.offer_for_graphs(op, Fused({"": row}))
    for op in {op for op, _ in BETWEEN_TENSORS}:
        rows = rows_between(op)
        shortcuts.offer(op, "AutogradCUDA", PackedSelection(op, rows))
        shortcuts.offer(op, "AutogradCPU", Selection(rows))
        shortcuts.offer_for_graphs(op, Fused(rows))
    for op in ("clamp", "clamp_min", "clamp_max"):
        shortcuts.offer(op, "AutogradCPU", Bounded(), BoundedInPlace())
    shortcuts.offer_for_windows(OnCuda())
    shortcuts.offer_fronts(fronts)
