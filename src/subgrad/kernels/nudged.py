"""The clamp family with a bound of its backward moved to the next number: whoever lies on it passes, or does not.

Torch's backward compares the input with the bounds. Of all numbers of a type, only the bound itself lies between it and
its neighbour; so the comparison with the neighbour differs from torch's own for entries on the bound and for no others,
nan among them. The node is torch's own, and no Python runs in it. The value, which would be off by the same step, is
written once more with the true bounds.

For CUDA tensors that are too small for a Triton kernel to pay. Not on the CPU: a process may flush what is next to 0.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.gates import below_autograd
from subgrad.apply.plan import INSTALLED, Meeting, Plan
from subgrad.apply.rule import Arguments
from subgrad.apply.shortcuts import Originals
from subgrad.conventions import torch_element
from subgrad.kernels.written import written

FAMILY = ("clamp", "clamp_min", "clamp_max")

Bounds = tuple[float | None, ...]


def moved_bounds(plan: Plan, arguments: Arguments) -> Bounds | None:
    """The bounds for the backward; None where weights other than exactly 0 and 1 are wanted."""
    bounds = _bounds(arguments)
    for meeting in plan.meetings:
        if meeting.choice is None:
            continue
        name = meeting.spot.kink.at
        if not _is_movable(meeting) or not isfinite(bounds[name]):
            return None
        outwards = -inf if name == "min" else inf
        towards = outwards if meeting.choice.weights["self"] == 1 else -outwards
        bounds[name] = _next(bounds[name], towards, arguments["self"].dtype)
    return tuple(bounds.values())


def _is_movable(meeting: Meeting) -> bool:
    """Whether there is a side that passes and one that does not, of which torch has the bound on the other one."""
    wanted, native = meeting.element, torch_element(meeting.spot, INSTALLED)
    return (
        meeting.is_exact
        and wanted is not None
        and native is not None
        and {wanted["self"], native["self"]} == {0.0, 1.0}
        and {meeting.spot.set.left_slope, meeting.spot.set.right_slope} == {0.0, 1.0}  # type: ignore[union-attr]
    )


def _next(number: float, towards: float, dtype: torch.dtype) -> float:
    return torch.nextafter(torch.tensor(number, dtype=dtype), torch.tensor(towards, dtype=dtype)).item()


def nudged(op: str, bounds: Bounds, arguments: Arguments, originals: Originals) -> Tensor:
    return written(originals(op, (arguments["self"], *bounds)), op, arguments)


def nudged_in_place(op: str, bounds: Bounds, arguments: Arguments, originals: Originals) -> Tensor:
    """Over the input, of which torch's own keeps a copy too."""
    x = arguments["self"]
    before = below_autograd(torch.clone, x)
    return written(originals(f"{op}_", (x, *bounds)), op, {**arguments, "self": before})


def _bounds(arguments: Arguments) -> dict[str, Any]:
    return {name: arguments[name] for name in ("min", "max") if name in arguments}
