"""On the CPU, without the C++ part: clamps, and selections against a constant, through `hardtanh`.

Its value is that of `clamp` to the bit. Its backward, one pass, gives 0 at the bounds and outside, and the cotangent
inside. Only where nan or infinities come out may torch's own differ; such calls, which a sum shows, go another way.
"""

from __future__ import annotations

from functools import partial
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.autograd_nodes import below_autograd, is_memory
from subgrad.apply.call import Call
from subgrad.apply.executors import Run
from subgrad.apply.plan import Plan
from subgrad.kernels.piecewise import Straight, is_number_for, only_given, rows_between

CLAMPS = ("clamp", "clamp_min", "clamp_max")


class CpuHardtanh:
    """See `Executor`."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        x, rows = call.args[0], rows_between(call.op.op)
        if not plan.choices or not (rows or call.op.op in CLAMPS) or forward_ad._current_level >= 0:
            return None
        if not plan.is_blocked or plan.names != {"self"} or not x.is_cpu or not is_memory(x):
            return None
        if rows:
            return None if call.in_place else partial(_select, rows)
        return _clamp_in_place if call.in_place else _clamp

    def gains(self, op: str, key: str) -> bool:
        return False


def _clamp(call: Call) -> Any:
    if not call.args[0].numel():  # of what is empty, `hardtanh` keeps the strides, and `clamp` does not
        return NotImplemented
    out = call.original("hardtanh", call.args[0], *_bounds(call))
    return out if _is_finite(out) else NotImplemented


def _clamp_in_place(call: Call) -> Any:
    """The input must be finite itself: once it is overwritten there is no way back."""
    x = call.args[0]
    if not x.numel() or not _is_finite(x):
        return NotImplemented
    return call.original("hardtanh_", x, *_bounds(call))


def _select(rows: dict[str, Straight], call: Call) -> Any:
    """The larger or smaller of a tensor and a constant of one entry."""
    arguments = call.arguments
    name = only_given(rows, arguments)
    x = arguments["self"]
    if name is None or not x.numel():
        return NotImplemented
    constant = arguments[name]
    if not is_number_for(x, constant) or not is_memory(constant):
        return NotImplemented
    value, number = rows[name].value(arguments), constant.item()
    out = call.original("hardtanh", x, *((number, inf) if value == "maximum" else (-inf, number)))
    if number == 0:  # the sign of a zero may be another
        with torch._C._AutoDispatchBelowADInplaceOrView():
            getattr(torch, value)(x, constant, out=out)
    return out if _is_finite(out) else NotImplemented


def _bounds(call: Call) -> tuple[float, float]:
    low, high = call.arguments.get("min"), call.arguments.get("max")
    return -inf if low is None else low, inf if high is None else high


def _is_finite(tensor: Tensor) -> bool:
    if tensor.numel() <= 64 and tensor.ndim == 1:  # Python is faster there
        return isfinite(sum(tensor.tolist()))
    return isfinite(below_autograd(torch.sum, tensor).item())
