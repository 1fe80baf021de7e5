"""Inside a compiled graph: one mask for all that an operator lets through, which Inductor keeps in a byte an entry.

The general rule would have a mask for each kink beside the operator's own, and the operator's input kept for them.
"""

from __future__ import annotations

from functools import partial
from math import isnan
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, below_autograd, laid_out, outer_levels, overwritten, through
from subgrad.apply.call import Call
from subgrad.apply.executors import Run
from subgrad.apply.plan import Plan
from subgrad.apply.torch_compile import guards
from subgrad.kernels.pass_mask import Mask
from subgrad.kernels.piecewise import STRAIGHT, coding_of, only_given, rows_between
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.autograd import forward_level


class CompiledMask:
    """See `Executor`. For operators whose entries either pass or do not."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        op, arguments = call.op.op, call.arguments
        if not plan.choices or plan.names != {"self"} or not guards.is_compiling():
            return None
        if forward_level() >= 0 or arguments["self"].layout is not torch.strided:
            return None
        second = "" if op in STRAIGHT else only_given(rows_between(op), arguments)
        if second is None:
            return None
        row = rows_between(op)[second] if second else STRAIGHT[op]
        low, high, _ = row.numbers(arguments)
        if not all(isinstance(each, int | float) and not isnan(each) for each in (low, high)):  # symbols
            return None
        coding = coding_of(row, plan, arguments, ("self",))
        mask = coding and Mask.of(coding, plan)
        return mask and partial(_run, mask, arguments[second] if second else low, high)

    def gains(self, op: str, key: str) -> bool:
        return False


def _run(mask: Mask, low: Tensor | float, high: float, call: Call) -> Any:
    x = call.args[0]
    value = below_autograd(overload(call.op.op), *call.op.args(call.arguments))
    if x.shape != value.shape or x.dtype is not value.dtype:
        return NotImplemented
    found = through(_Masked, x, value, mask.compare(x.detach(), low, high), mask.says_who_is_blocked)
    return overwritten(x, found) if call.in_place else found


class _Masked(Gate):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, mask: Tensor, says_who_is_blocked: bool) -> Tensor:
        ctx.says_who_is_blocked = says_who_is_blocked
        ctx.save_for_backward(mask)
        with outer_levels():
            return alias(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        passed = torch.where(mask, 0, cotangent) if ctx.says_who_is_blocked else torch.where(mask, cotangent, 0)
        return laid_out(passed, cotangent), None, None, None
