"""What the fast path asks, once for each kind of call: the same planner and executors as in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import nan
from typing import Any

import torch

from subgrad.apply import executors
from subgrad.apply.call import Call, Originals
from subgrad.apply.native import Native
from subgrad.apply.operators import Operator
from subgrad.apply.plan import Plan
from subgrad.apply.strong_zero.table import has_finite_slope, reaches
from subgrad.apply.torch_compile.guards import is_compiling
from subgrad.conventions import Convention
from subgrad.kernels import cuda_bitmask
from subgrad.kernels.cpu_mask import CLAMPS
from subgrad.kernels.cuda_bitmask import keeps_result, packing_of
from subgrad.kernels.cuda_corners import curve_of, mending_of
from subgrad.kernels.max_pool import pooling_of
from subgrad.kernels.native.build import built
from subgrad.kernels.piecewise import CLAMPS as VALUES_OF_CLAMPS
from subgrad.kernels.piecewise import rows_between
from subgrad.kernels.zero_one_mask import masked
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.dispatcher import schema_of

KEYS = ("AutogradCPU", "AutogradCUDA")
# Max-pooling with indices is answered on the CPU alone, where torch's own composites call it.
POOLINGS = {
    "max_pool2d_with_indices": ("max_pool1d", "max_pool2d"),
    "max_pool3d_with_indices": ("max_pool3d",),
    "adaptive_max_pool2d": (),
    "adaptive_max_pool3d": (),
}
ANY_SIZE = (0, sys.maxsize)  # the least number of entries, and the least that is too many
_paths: list[Any] = []


def fast_paths(key: str, operators: tuple[Operator, ...], originals: Originals) -> dict[str, Callable[[], None]]:
    """The fast paths of operators at one key, by form, each as the function that puts it there: see `dispatch`."""
    module = built() if key in KEYS else None
    if module is None:
        return {}
    made: dict[str, Any] = {}
    for op in operators:
        for form in _forms(op, key):
            name, _, overload = form.partition(".")
            planner = Planner(op, form, key == "AutogradCPU", originals, made)
            made[form] = module.FastPath(f"aten::{name}", overload, key, form == op.in_place, op.is_joint, planner)
    _paths.extend(made.values())
    return {form: path.cover for form, path in made.items()}


def _forms(op: Operator, key: str) -> tuple[str, ...]:
    if not op.is_joint:
        return (op.op, op.in_place) if op.in_place else (op.op,)
    if op.op not in POOLINGS:
        return ()
    if key == "AutogradCUDA":
        return tuple(form for form in POOLINGS[op.op] if form != "max_pool1d")
    return (op.op, *POOLINGS[op.op])


def paths_around_python(key: str, forms: Iterable[str]) -> dict[str, Callable[[], None]]:
    """The same for kernels that only do something where an input is differentiated: elsewhere no Python runs then."""
    module = built() if key in KEYS else None
    if module is None:
        return {}
    made = {}
    for form in forms:
        arguments = schema_of(overload(form)).arguments
        # The paths look at tensors, and not into lists of them.
        if str(arguments[0].type) == "Tensor" and not any("Tensor[]" in str(each.type) for each in arguments):
            name, _, kind = form.partition(".")
            made[form] = module.FastPath(f"aten::{name}", kind, key, False, False, None).cover
    return made


def forget() -> None:
    """Ask the planner again, for every kind of call."""
    for path in _paths:
        path.forget()


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
        x, path = args[0], self.beside[self.form]
        # While a graph is traced the convention may be another; and what is compiled would be captured.
        if is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing()):
            return None
        if not convention.interferes:
            return path.torchs_own(*ANY_SIZE)
        name = self.op.base_name
        may_need_strong_zeros = convention.strong_zero and name in reaches() and not has_finite_slope(name, args)
        if not self.op.slopes_are_numbers or may_need_strong_zeros:
            return path.in_python(*ANY_SIZE)
        call = Call(self.op, self.form, self.originals, convention, None, args, {})
        _, plan, number, run = executors.find(call)
        if self.op.is_joint:
            pooling = pooling_of(run, call)
            if pooling is not None:
                return path.pooled(x, *pooling)
            return path.torchs_own(*ANY_SIZE) if plan.is_native else path.in_python(*ANY_SIZE)
        # A bit an entry is better than torch's own backward, which keeps the input, even for the same element.
        gains = self.op.op in CLAMPS or rows_between(self.op.op)
        mask = self._mask(plan, call) if self.on_cpu and (plan.choices or gains) else None
        if mask is not None:
            return path.masked(*mask)
        split = cuda_bitmask.smallest() if x.is_cuda else sys.maxsize
        sizes = (split, sys.maxsize) if x.numel() >= split else (0, split)
        if isinstance(executors.EXECUTORS[number], Native):
            return self._native(path, call, sizes)
        curve = curve_of(plan, call)
        mending = curve and mending_of(curve, x)
        if mending is not None:
            return path.mended(*mending)
        packing = None if self.on_cpu else packing_of(run, x)
        return path.in_python(*sizes) if packing is None else path.packed(x, *packing, *sizes)

    def _native(self, path: Any, call: Call, sizes: tuple[int, int]) -> Any:
        base, arguments = self.op.base(call.arguments)
        if base is self.op:
            return path.torchs_own(*sizes)
        form = base.in_place if call.in_place else base.op
        assert form is not None
        return path.other(self.beside[form], base.args(arguments)[1:], *sizes)

    def _mask(self, plan: Plan, call: Call) -> tuple[float, float, tuple[bool, ...], int, bool, bool] | None:
        """The kinks, who passes around them, which argument the kink is, if a tensor, whether this is a clamp, and
        whether second derivatives are zeros."""
        found = masked(plan, call)
        if found is None or found.row.by_lanes or found.low >= found.high:
            return None
        passes = found.mask.passes
        if found.second:
            return 0.0, nan, passes, self.op.argument_names.index(found.second), False, True
        is_clamp = found.row.value(call.arguments) in VALUES_OF_CLAMPS
        return (
            found.low,
            found.high if found.corners == 2 else nan,
            passes,
            -1,
            is_clamp,
            not is_clamp or keeps_result(self.form),
        )


executors.when_forgotten.append(forget)
