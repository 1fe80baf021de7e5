"""What the fast path asks, once for each kind of call: the same planner and executors as in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isnan, nan
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply import executors
from subgrad.apply.call import Call, Originals
from subgrad.apply.native import Native
from subgrad.apply.operators import Operator
from subgrad.apply.plan import Plan
from subgrad.apply.strong_zero.table import reaches
from subgrad.apply.torch_compile.guards import is_compiling
from subgrad.conventions import Convention
from subgrad.kernels import cuda_bitmask
from subgrad.kernels.cpu_mask import CLAMPS
from subgrad.kernels.cuda_bitmask import keeps_result, packing_of
from subgrad.kernels.max_pool import pooling_of
from subgrad.kernels.native.build import built
from subgrad.kernels.pass_mask import Mask
from subgrad.kernels.piecewise import CLAMPS as VALUES_OF_CLAMPS
from subgrad.kernels.piecewise import STRAIGHT, coding_of, is_number_for, only_given, rows_between

KEYS = ("AutogradCPU", "AutogradCUDA")
POOLINGS = {
    "AutogradCUDA": {"max_pool2d_with_indices": ("max_pool2d",), "max_pool3d_with_indices": ("max_pool3d",)},
    "AutogradCPU": {
        "max_pool2d_with_indices": ("max_pool1d", "max_pool2d", "max_pool2d_with_indices"),
        "max_pool3d_with_indices": ("max_pool3d", "max_pool3d_with_indices"),
        "adaptive_max_pool2d": ("adaptive_max_pool2d",),
        "adaptive_max_pool3d": ("adaptive_max_pool3d",),
    },
}
_paths: list[Any] = []


def fast_paths(key: str, operators: tuple[Operator, ...], originals: Originals) -> dict[str, Callable[[], None]]:
    """What lies over the operators' forms at one key, to be put there; made before any kernel is registered."""
    module = built() if key in KEYS else None
    if module is None:
        return {}
    made: dict[str, Any] = {}
    for op in operators:
        if op.is_joint:
            forms = POOLINGS[key].get(op.op, ())
            made |= {form: module.PoolPath(f"aten::{form}", key, PoolPlanner(op, form, originals)) for form in forms}
            continue
        for form in filter(None, (op.op, op.in_place)):
            name, _, overload = form.partition(".")
            planner = Planner(op, form, key == "AutogradCPU", originals, made)
            made[form] = module.FastPath(f"aten::{name}", overload, key, form != op.op, planner)
    _paths.extend(made.values())
    return {form: path.cover for form, path in made.items()}


def forget() -> None:
    """Ask the planner again, for every kind of call."""
    for path in _paths:
        path.forget()


def _is_not_to_be_remembered(x: Tensor) -> bool:
    """While a graph is traced the convention may be another; and what is compiled would be captured."""
    return is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


class Bounds(NamedTuple):
    """The numbers of entries of calls that are alike."""

    smallest: int
    below: int

    @classmethod
    def of(cls, x: Tensor) -> Bounds:
        split = cuda_bitmask.smallest() if x.is_cuda else sys.maxsize
        return cls(split, sys.maxsize) if x.numel() >= split else cls(0, split)


@dataclass(frozen=True)
class Planner:
    """What the fast path asks once for each kind of call of one form: how it is answered in C++."""

    op: Operator
    form: str
    on_cpu: bool
    originals: Originals = field(repr=False)
    beside: dict[str, Any] = field(repr=False)  # the fast paths of the same key, by form

    def __call__(self, convention: Convention, *args: Any) -> Any:
        """An answer of the C++ module's; None for a call that is run in Python, and not remembered."""
        if _is_not_to_be_remembered(args[0]):
            return None
        path, sizes = self.beside[self.form], Bounds.of(args[0])
        if not convention.interferes:
            return path.torchs_own(0, sys.maxsize)
        if not self.op.slopes_are_numbers or (convention.strong_zero and self.op.base_name in reaches()):
            return path.in_python(0, sys.maxsize)
        call = Call(self.op, self.form, self.originals, convention, None, args, {})
        _, plan, number, run = executors.find(call)
        mask = self._mask(plan, call) if self.on_cpu and (plan.choices or self._gains) else None
        if mask is not None:
            return path.masked(*mask, keeps_result(self.form) if self.op.op in STRAIGHT else False)
        if isinstance(executors.EXECUTORS[number], Native):
            return self._native(path, call, sizes)
        packing = None if self.on_cpu else packing_of(run, args[0])
        return path.in_python(*sizes) if packing is None else path.packed(args[0], *packing, *sizes)

    @property
    def _gains(self) -> bool:
        """On the CPU a bit an entry is better than torch's own, which keeps the input."""
        return bool(rows_between(self.op.op)) or self.op.op in CLAMPS

    def _native(self, path: Any, call: Call, sizes: Bounds) -> Any:
        base, arguments = self.op.base(call.arguments)
        if base is self.op:
            return path.torchs_own(*sizes)
        form = base.in_place if call.in_place else base.op
        assert form is not None
        return path.other(self.beside[form], base.args(arguments)[1:], *sizes)

    def _mask(self, plan: Plan, call: Call) -> tuple[float, float, tuple[bool, ...], int, bool] | None:
        """The kinks, who passes around them, which argument the kink is, if a tensor, and whether it is a clamp."""
        arguments, is_clamp = call.arguments, False
        if self.op.op in STRAIGHT:
            row, place = STRAIGHT[self.op.op], -1
            is_clamp = row.value(arguments) in VALUES_OF_CLAMPS
            low, high, _ = row.numbers(arguments)
            if isnan(low) or isnan(high) or low >= high or row.by_lanes:
                return None
        else:
            rows = rows_between(self.op.op)
            second = only_given(rows, arguments) if rows else None
            if second is None or plan.names != {"self"} or not is_number_for(arguments["self"], arguments[second]):
                return None
            row, place, low, high = rows[second], self.op.argument_names.index(second), 0.0, inf
        coding = coding_of(row, plan, arguments, ("self",)) if plan.meetings else None
        mask = None if coding is None else Mask.of(coding, plan)
        if coding is None or mask is None:
            return None
        return low, high if coding.corners == 2 else nan, mask.passes, place, is_clamp


@dataclass(frozen=True)
class PoolPlanner:
    """The same for max-pooling: kinds of calls are told apart by shapes and strides as well."""

    op: Operator
    form: str
    originals: Originals = field(repr=False)

    def __call__(self, convention: Convention, *args: Any) -> Any:
        """What the C++ part launches; None where calls like this one are run in Python."""
        if _is_not_to_be_remembered(args[0]):
            return NotImplemented
        if not convention.interferes:
            return None
        call = Call(self.op, self.form, self.originals, convention, None, args, {})
        return pooling_of(executors.find(call)[3], call)


executors.when_forgotten.append(forget)
