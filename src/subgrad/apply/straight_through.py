"""Straight through a clamp: its value, and the gradient of the identity. A surrogate, which needs no mask at all.

The first operand is given the cotangent at every entry: inside the bounds, on them, beyond them, and where it is nan.
Bounds that are tensors keep the derivative they have where they decide, which no version of torch disputes; where the
operand lies on a bound, the bound is given nothing, as under `pass-through`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import below_autograd, overwritten, valued
from subgrad.apply.call import Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.fork_join import aligned
from subgrad.apply.plan import Plan
from subgrad.kinks.overloads import overload


class StraightThrough(Executor):
    """Clamps, on any device."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        if not plan.is_straight_through:
            return None
        names = plan.names
        return lambda call: _run(call, names)


def _run(call: Call, names: frozenset[str]) -> Tensor:
    arguments = call.arguments
    value = below_autograd(overload(call.op.op), *call.op.args(arguments))
    operands = [name for name in call.op.operands if name in names]
    passed = _passed(aligned(arguments, operands, value), operands)
    found = valued(passed, value)
    return overwritten(call.args[0], found) if call.in_place else found


def _passed(arguments: Mapping[str, Any], operands: list[str]) -> Tensor:
    """What has the wanted derivative, whatever its value: the operand, and each bound where it decides."""
    deciding = {name: _deciding(name, arguments) for name in operands if name != "self"}
    parts = [torch.where(where, arguments[name], 0) for name, where in deciding.items()]
    if "self" in operands:
        parts.insert(0, arguments["self"])
    return sum(parts[1:], parts[0])


def _deciding(name: str, arguments: Mapping[str, Any]) -> Tensor:
    """Where a bound is the value of ``minimum(maximum(self, min), max)``; of two that tie, the earlier."""
    x, low, high = arguments["self"], arguments.get("min"), arguments.get("max")
    if name == "min":
        return x < low if high is None else (x < low) & (low <= high)
    return x > high if low is None else (x > high) | (low > high)
