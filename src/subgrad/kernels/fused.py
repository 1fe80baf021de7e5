"""Inside a compiled graph: one mask for all that an operator lets through, which Inductor keeps in a byte an entry.

The rule would have a mask for each kink beside the operator's own, and the operator's input kept for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.gates import Gate, alias, laid_out, outer_levels, through
from subgrad.apply.plan import Plan
from subgrad.apply.rule import Arguments
from subgrad.kernels.masked import Mask
from subgrad.kernels.pieces import Straight, coding_of, only_given


@dataclass(frozen=True)
class Fused:
    """An operator whose entries either pass or do not."""

    rows: dict[str, Straight]  # by the name of the second tensor, if it may be one or another; "" for none

    def __call__(self, plan: Plan, arguments: Arguments, value: Tensor) -> Tensor | None:
        second = "" if "" in self.rows else only_given(self.rows, arguments)
        x = arguments["self"]
        if second is None or plan.names != {"self"} or x.shape != value.shape or x.dtype is not value.dtype:
            return None
        row = self.rows[second]
        low, high, _ = row.numbers(arguments)
        if not all(isinstance(each, int | float) and not isnan(each) for each in (low, high)):  # symbols
            return None
        coding = coding_of(row, plan, arguments, ("self",))
        mask = coding and Mask.of(coding, plan)
        if mask is None:
            return None
        if second:
            low = arguments[second]
        return through(_Masked, x, value, mask.compare(x.detach(), low, high), mask.says_who_is_blocked)


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
