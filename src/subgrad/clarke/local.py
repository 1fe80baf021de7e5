"""The certificate of one operator: its own values, a little further along its operands' tangents, against its tangent.

Nothing here knows a rule. Values are those of torch's own operator, in double precision, at u + t u' for four small t;
quotients of them that all agree tell the derivative, entry by entry. Where they do not agree, as with another kink
between them, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.branches import Call
from subgrad.clarke.linear import parts, tangent, values

STEP = 2.0**-24  # of the operands' size, in double precision
SHARES = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}  # what rounding allows


def is_floating(each: Any) -> bool:
    return isinstance(each, Tensor) and each.is_floating_point()


def contradicted(call: Call, outputs: Sequence[tuple[int, Tensor]], is_entrywise: bool) -> Tensor | None:
    """A flag: some output moves otherwise than its tangent says; None if there is nothing to compare."""
    slopes = [(number, tangent(out), out.dtype) for number, out in outputs]
    moving = [(number, slope, dtype) for number, slope, dtype in slopes if slope is not None and slope.numel()]
    if not moving:
        return None
    with torch.no_grad():
        near, step, size = values_along(call)
        flags = [
            _differs([_output(each, number) for each in near], step, slope, 0.0 if is_entrywise else size, dtype)
            for number, slope, dtype in moving
        ]
    return torch.stack(flags).any()


def _output(out: Any, number: int) -> Tensor:
    return out if isinstance(out, Tensor) else out[number]


def values_along(call: Call) -> tuple[list[Any], Any, Any]:
    """The operator's values at operands moved by t, t/2, t/4 and 0 times their tangents; t; the largest tangent."""
    operands = {name: parts(each) for name, each in call.arguments.items() if is_floating(each)}
    with values():
        lengths = [ahead.abs().amax().double() for _, ahead in operands.values() if ahead is not None and ahead.numel()]
        sizes = [x.abs().nan_to_num(0, 0, 0).amax().double() for x, _ in operands.values() if x.numel()]
        length = torch.stack(lengths).amax() if lengths else torch.zeros((), dtype=torch.float64)
        size = torch.stack([each.to(length.device) for each in sizes]).amax()
        step = STEP * torch.where((length > 0) & (size > 0), size / length, 1.0)
        return [_at(call, operands, step * part) for part in (1, 0.5, 0.25, 0)], step, length


def _at(call: Call, operands: dict[str, Any], step: Tensor) -> Any:
    moved = {
        name: x.double() if ahead is None else x.double() + step.to(x.device) * ahead.double()
        for name, (x, ahead) in operands.items()
    }
    return call.native({**call.arguments, **moved})


def _differs(near: list[Tensor], step: Tensor, slope: Tensor, rest: Any, dtype: torch.dtype) -> Tensor:
    """Whether quotients agree with each other, somewhere, and not with the slope."""
    with values():
        one, two, three, here = (each.double() for each in near)
        step, slope = step.to(one.device), slope.double()
        first, second = (one - two) / (step / 2), (two - three) / (step / 4)
        noise = 16 * torch.finfo(torch.float64).eps * (one.abs() + slope.abs() * step) / (step / 4)
        noise = noise + 1e-6 * rest + 4 * torch.finfo(torch.float64).smallest_normal * 2.0**-52 / (step / 4)
        allowed = SHARES.get(dtype, 1e-4) * (second.abs() + slope.abs()) + noise
        last = (three - here) / (step / 4)  # which differs, be it by little, if another kink lies in between
        is_near = (last - second).abs() <= 1e-6 * (second.abs() + slope.abs()) + noise
        is_known = ((first - second).abs() <= allowed) & is_near
        # In few bits sums over many entries are known to what rounding leaves of the largest.
        limits = torch.finfo(dtype)
        blur = 64 * limits.eps * rest + 4 * limits.smallest_normal * limits.eps
        return (is_known & ((second - slope).abs() > 4 * allowed + blur)).any()
