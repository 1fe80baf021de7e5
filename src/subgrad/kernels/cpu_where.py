"""On the CPU, without the C++ part: clamps, and selections against a constant, as torch's own `where`.

Its backward is one kernel, and no Python. It keeps who passes, a byte an entry, where torch keeps the input. The value
is written into its result by the operator itself.
"""

from __future__ import annotations

from functools import cache, partial
from math import isnan
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.autograd_nodes import is_memory, overwritten
from subgrad.apply.call import Call
from subgrad.apply.executors import Run
from subgrad.apply.plan import Plan
from subgrad.kernels.pass_mask import Mask
from subgrad.kernels.piecewise import STRAIGHT, coding_of, only_given, rows_between
from subgrad.kinks.overloads import overload

CLAMPS = ("clamp", "clamp_min", "clamp_max")


class CpuWhere:
    """See `Executor`. For operators whose entries pass or do not, and of which torch has no second derivative."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        x, op, rows = call.args[0], call.op.op, rows_between(call.op.op)
        if not plan.choices or not (rows or op in CLAMPS) or forward_ad._current_level >= 0:
            return None
        if plan.names != {"self"} or not x.is_cpu or not is_memory(x):
            return None
        second = only_given(rows, call.arguments) if rows else ""
        if second is None:
            return None
        row = rows[second] if second else STRAIGHT[op]
        low, high, _ = row.numbers(call.arguments)
        coding = None if isnan(low) or isnan(high) else coding_of(row, plan, call.arguments, ("self",))
        mask = coding and Mask.of(coding, plan)
        return mask and partial(_run, mask, second, low, high)

    def gains(self, op: str, key: str) -> bool:
        return False


def _run(mask: Mask, second: str, low: float, high: float, call: Call) -> Any:
    x, place = call.args[0], low
    if second:
        place = call.arguments[second]
        if not is_memory(place) or place.dtype is not x.dtype or place.device != x.device:
            return NotImplemented
        if place.shape != x.shape and (place.ndim or not x.ndim):
            return NotImplemented
        if bool(place.isnan().any()) if place.ndim else isnan(place.item()):
            return NotImplemented
    said = mask.compare(x.detach(), place, high)
    passing = torch.where(said, 0, x) if mask.says_who_is_blocked else torch.where(said, x, 0)
    return overwritten(x, _written(call, passing)) if call.in_place else _written(call, passing)


def _written(call: Call, out: Tensor) -> Tensor:
    """The operator's value in a tensor that has the derivative already."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return _writing(call.op.op)(*call.op.args(call.arguments), out=out)


@cache
def _writing(op: str) -> Any:
    """The overload that writes into a given tensor."""
    name, _, form = op.partition(".")
    return overload(f"{name}.{form}_out" if form else f"{name}.out")
