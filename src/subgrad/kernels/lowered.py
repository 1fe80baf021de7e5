"""On the CPU: the clamp family, and selections against a constant, through `hardtanh`, whose backward is one pass.

Its value is that of `clamp` to the bit. Its backward gives 0 at the bounds and outside, and the cotangent inside. Only
where nan or infinities come out may torch's own differ; such calls, which a sum shows, are not lowered.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor

from subgrad.apply.gates import below_autograd, is_memory
from subgrad.apply.plan import Plan
from subgrad.apply.rule import Arguments
from subgrad.apply.shortcuts import Originals
from subgrad.kernels.pieces import Straight, is_number_for, only_given


@dataclass(frozen=True)
class Bounded:
    """Between numbers."""

    smallest: int = 8192  # below, torch's slower backward costs less than a look at the sum

    def pays_from(self, plan: Plan) -> int:
        return self.smallest if plan.is_blocked else sys.maxsize

    def ever_pays(self) -> bool:
        return True

    def __call__(self, plan: Plan, arguments: Arguments, originals: Originals) -> Tensor | None:
        if not self.applies(plan, arguments["self"]):
            return None
        out = originals("hardtanh", (arguments["self"], *_bounds(arguments)))
        return out if _is_finite(out) else None

    def applies(self, plan: Plan, x: Tensor) -> bool:
        # Of what is empty, `hardtanh` keeps the strides, and `clamp` does not.
        return plan.is_blocked and is_memory(x) and x.numel() >= (1 if plan.choices else self.smallest)


class BoundedInPlace(Bounded):
    """Between numbers, over the input, which must be finite itself: once it is overwritten there is no way back."""

    def __call__(self, plan: Plan, arguments: Arguments, originals: Originals) -> Tensor | None:
        x = arguments["self"]
        if not self.applies(plan, x) or not _is_finite(x):
            return None
        return originals("hardtanh_", (x, *_bounds(arguments)))


@dataclass(frozen=True)
class Selection:
    """The larger or smaller of a tensor and a constant of one entry."""

    rows: dict[str, Straight]  # by the name of the constant, if it may be one or another

    def pays_from(self, plan: Plan) -> int:
        return 1 if plan.names == _SELF and plan.is_blocked else sys.maxsize

    def ever_pays(self) -> bool:
        return True

    def __call__(self, plan: Plan, arguments: Arguments, originals: Originals) -> Tensor | None:
        name = only_given(self.rows, arguments)
        if name is None or plan.names != _SELF or not plan.is_blocked:
            return None
        x, constant, row = arguments["self"], arguments[name], self.rows[name]
        if not is_number_for(x, constant) or not x.numel() or not is_memory(x) or not is_memory(constant):
            return None
        value, number = row.value(arguments), constant.item()
        out = originals("hardtanh", (x, number, inf) if value == "maximum" else (x, -inf, number))
        if number == 0:  # the sign of a zero may be another
            with torch._C._AutoDispatchBelowADInplaceOrView():
                getattr(torch, value)(x, constant, out=out)
        return out if _is_finite(out) else None


_SELF = frozenset({"self"})


def _bounds(arguments: Arguments) -> tuple[float, float]:
    low, high = arguments.get("min"), arguments.get("max")
    return -inf if low is None else low, inf if high is None else high


def _is_finite(tensor: Tensor) -> bool:
    if tensor.numel() <= 64 and tensor.ndim == 1:  # Python is faster there
        return isfinite(sum(tensor.tolist()))
    return isfinite(below_autograd(torch.sum, tensor).item())
