"""Inside a compiled graph: one mask for all that an operator lets through, which Inductor keeps in a byte an entry.

The general rule would have a mask for each kink beside the operator's own, and the operator's input kept for them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, below_autograd, laid_out, outer_levels, overwritten, through
from subgrad.apply.call import Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.plan import Plan
from subgrad.apply.torch_compile import guards
from subgrad.kernels.zero_one_mask import ZeroOneMask, masked
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.autograd import forward_level


class CompiledMask(Executor):
    """See `Executor`."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        if not plan.choices or not guards.is_compiling() or forward_level() >= 0:
            return None
        found = masked(plan, call) if call.arguments["self"].layout is torch.strided else None
        return found and partial(_run, found.mask, call.arguments.get(found.second, found.low), found.high)


def _run(mask: ZeroOneMask, low: Tensor | float, high: float, call: Call) -> Any:
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
