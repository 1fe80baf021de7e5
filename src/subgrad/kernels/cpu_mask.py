"""On the CPU, without the C++ part: clamps, and selections against a constant, by a mask of zeros and ones.

Torch's `threshold_backward` lets entries through where a second tensor lies above a number, as an operator that has
itself for a derivative: one kernel each way, of any order, and no Python in backward. Unlike `where` it is vectorised.
The mask takes as many bytes as the input, which torch would keep.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from subgrad.apply.autograd_nodes import is_memory, overwritten
from subgrad.apply.call import Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.plan import Plan
from subgrad.kernels.zero_one_mask import ZeroOneMask, masked
from subgrad.torch_internals.autograd import below_autograd_and_views as values
from subgrad.torch_internals.autograd import forward_level

CLAMPS = ("clamp", "clamp_min", "clamp_max")
_let_through = torch.ops.aten.threshold_backward.default


class CpuMask(Executor):
    """See `Executor`. For operators of which torch has no second derivative."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        x, op = call.args[0], call.op.op
        if not plan.choices or forward_level() >= 0 or not x.is_cpu or not is_memory(x):
            return None
        found = masked(plan, call)
        if found is None or not (found.second or op in CLAMPS):
            return None
        position = 0
        if found.second:
            place, position = call.arguments[found.second], call.op.argument_names.index(found.second)
            if not is_memory(place) or place.dtype is not x.dtype or place.device != x.device:
                return None
        function = getattr(torch, op.partition(".")[0])
        return partial(_run, function, found.mask, position, found.low, found.high, call.in_place)


def _run(function: Any, mask: ZeroOneMask, position: int, low: float, high: float, in_place: bool, call: Call) -> Any:
    """The position is that of the tensor with which entries are compared; 0 if they are compared with numbers."""
    args, kwargs, place = call.args, call.kwargs, low
    x = args[0]
    if position:
        place = args[position]  # where it is nan torch does as where `self` is, and so do comparisons
        if place.ndim and (place.shape != x.shape or place.stride() != x.stride()):
            return NotImplemented  # both decide how the result is laid out
    with values():
        if mask.passes_what_stays and not position:
            said = function(*args, **kwargs).eq_(x)
        else:
            said = mask.compare(x, place, high, out=torch.empty_like(x))
    out = _let_through(x, said.neg_(), -0.5) if mask.says_who_is_blocked else _let_through(x, said, 0.5)
    with values():
        function(*args, out=out, **kwargs)
    return overwritten(x, out) if in_place else out
