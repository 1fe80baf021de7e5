"""Rows for an operator that is not torch's, held against its values before anything is believed of them.

Tests do that with the rows of torch's own operators. A false row would give false gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from subgrad.kinks.checked_rows import NO_DERIVATIVE, Call
from subgrad.kinks.kink import Kink
from subgrad.kinks.overloads import call_by_name, tensor_names
from subgrad.kinks.samples import filled
from subgrad.kinks.sets import Slopes, Ties

STEP = 2.0**-10  # of differences, of which two are extrapolated: exact to 1e-6, and in float32 to 1e-3
SAME = 2e-3


def require_truth(kinks: Sequence[Kink], calls: Sequence[Call], device: torch.device | str) -> None:
    """Hold rows, and the operator's derivative, against the operator's own values, in float64.

    Raises:
        ValueError: for a row that they contradict or that no call meets, for an operator that bends where no row says
            so, does not work entry by entry, or has another derivative than its values.
    """
    op, met = kinks[0].op, set[Kink]()
    for numbers in calls:
        call, hits = _sampled(kinks, numbers, device)
        _require_entrywise(op, call)
        slopes = _own_slopes(op, call)
        for entry in range(len(call["self"])):
            here = [kink for kink, places in hits.items() if bool(places[entry])]
            point = Point(op, _at(call, entry))
            for kink in here:
                _require_set(kink, point)
            if not here:
                _require_smooth(point, {name: float(slope[entry]) for name, slope in slopes.items()})
            met.update(here)
    for kink in kinks:
        if kink not in met:
            raise ValueError(f"{op}: no call meets the kink at {kink.place}. Give calls=[...] that do.")


def _sampled(kinks: Sequence[Kink], numbers: Call, device: torch.device | str) -> tuple[Call, dict[Kink, Tensor]]:
    """A call with tensors, and which of their entries lie on each kink."""
    try:
        call = filled(kinks, numbers, torch.float64, device)
        return call, {kink: kink.hits(call) for kink in kinks if kink.applies(call)}
    except Exception as error:
        raise ValueError(
            f"{kinks[0].op}: its rows cannot be evaluated with {dict(numbers)}: {type(error).__name__}: {error}"
        ) from error


def _at(call: Call, entry: int) -> Call:
    return {name: each[entry] if isinstance(each, Tensor) else each for name, each in call.items()}


def _value(op: str, call: Call) -> Tensor:
    try:
        with torch.no_grad():
            return call_by_name(op, call)
    except Exception as error:
        raise ValueError(
            f"{op} could not be called with tensors in float64 and {_shown(call)}, as its rows are checked: give "
            f"calls= that it takes, and device= if it does not run on the CPU. {type(error).__name__}: {error}"
        ) from error


def _shown(call: Call) -> str:
    numbers = {name: each.item() if isinstance(each, Tensor) and not each.ndim else each for name, each in call.items()}
    return ", ".join(f"{name}={each}" for name, each in numbers.items() if not isinstance(each, Tensor)) or "no numbers"


@dataclass(frozen=True)
class Point:
    """A call on numbers."""

    op: str
    call: Call

    def slope(self, name: str, side: int) -> float:
        """In one argument, below or above it, by the operator's values."""
        return 2 * self._quotient(name, side * STEP / 2) - self._quotient(name, side * STEP)

    def _quotient(self, name: str, step: float) -> float:
        moved = {**self.call, name: self.call[name] + step}
        return float(_value(self.op, moved) - _value(self.op, self.call)) / step


def _require_entrywise(op: str, call: Call) -> None:
    out = _value(op, call)
    for entry in range(len(call["self"])):
        one = _value(op, _at(call, entry))
        if out.shape != call["self"].shape or one.numel() != 1 or not _is_near(float(out[entry]), float(one)):
            raise ValueError(f"{op} does not work entry by entry, and only such operators can be given rows.")


def _own_slopes(op: str, call: Call) -> dict[str, Tensor]:
    """The derivative that the operator has, in its tensors."""
    leaves = {name: call[name].clone().requires_grad_() for name in tensor_names(op) if call.get(name) is not None}
    try:
        with torch.enable_grad():
            out = call_by_name(op, {**call, **leaves})
            cotangent = torch.linspace(1.0, 2.0, len(out), dtype=out.dtype, device=out.device)
            found = torch.autograd.grad(out, list(leaves.values()), cotangent, allow_unused=True)
    except Exception as error:
        raise ValueError(f"{NO_DERIVATIVE.format(op)} To differentiate it raised: {error}") from error
    return {name: each / cotangent for name, each in zip(leaves, found, strict=True) if each is not None}


def _require_set(kink: Kink, at: Point) -> None:
    """On a kink: the slopes of the row are those of the values on both sides."""
    for name in kink.set.candidates:
        for side, words in ((-1, "left"), (1, "right")):
            stated, found = _stated(kink, at.call, name, side), at.slope(name, side)
            if not _is_near(stated, found):
                raise ValueError(
                    f"{kink.op} at {kink.place}: by the row the {words} slope in {name} is {stated:g}, by the "
                    f"operator's values {found:g}, at {_shown(at.call)}."
                )


def _stated(kink: Kink, call: Call, name: str, side: int) -> float:
    if isinstance(kink.set, Ties):
        lowered, raised = kink.set.moved[name]
        return float(name in (raised if side > 0 else lowered))
    assert isinstance(kink.set, Slopes)
    slopes = kink.set.at(call)
    return float(slopes.right_slope if side > 0 else slopes.left_slope)


def _require_smooth(at: Point, own: Mapping[str, float]) -> None:
    """Off the kinks: the operator does not bend, and its derivative is that of its values."""
    for name, slope in own.items():
        left, right = (at.slope(name, side) for side in (-1, 1))
        if not _is_near(left, right):
            raise ValueError(
                f"{at.op} bends where none of the rows has a kink: its slopes in {name} are {left:g} and {right:g} at "
                f"{_shown(at.call)}. Give all its rows."
            )
        if not _is_near(slope, left):
            raise ValueError(
                f"{at.op} has another derivative than its values: {slope:g} in {name} instead of {left:g} at "
                f"{_shown(at.call)}. Its kinks are not those of what it computes."
            )


def _is_near(one: float, other: float) -> bool:
    return not abs(one - other) > SAME * (1 + abs(one))  # what is not finite says nothing
