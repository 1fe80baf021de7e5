"""The certificate of one operator: its own values, a little further along its operands' tangents, against its tangent.

Nothing here knows a rule. Values are those of torch's own operator, in double precision, at u + t u' for four small t;
quotients of them that all agree tell the derivative, entry by entry. Where they do not agree, as with another kink
between them, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import parts, tangent, values, with_tangent
from subgrad.kinks.rounded import rounded

MANY = 1 << 14  # entries: of what is larger so many are held against values, of those that were decided
STEP = 2.0**-24  # of the operands' size, in double precision
SHARES = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}  # what rounding allows


def is_floating(each: Any) -> bool:
    return isinstance(each, Tensor) and each.is_floating_point()


def contradicted(call: PassCall, outputs: Sequence[tuple[int, Tensor]], is_entrywise: bool) -> Tensor | None:
    """A flag: some output moves otherwise than its tangent says; None if there is nothing to compare."""
    slopes = [(number, tangent(out), out.dtype) for number, out in outputs]
    moving = [(number, slope, dtype) for number, slope, dtype in slopes if slope is not None and slope.numel()]
    if not moving:
        return None
    with torch.no_grad():
        along = Along(call)
        rest: Any = 0.0 if is_entrywise else along.length
        one, here = along.at(1), along.at(0)
        # As nearly always; two more values are needed to tell a contradiction. A device is not waited for.
        if isinstance(along.step, float) and all(
            _agrees(_output(one, number), _output(here, number), along.step, slope, rest, dtype)
            for number, slope, dtype in moving
        ):
            return None
        near = [one, along.at(0.5), along.at(0.25), here]
        flags = [
            _differs([_output(each, number) for each in near], along.step, slope, rest, dtype)
            for number, slope, dtype in moving
        ]
    return torch.stack(flags).any()


def part_of(call: PassCall, names: Sequence[str], pick: Callable[[Tensor], Tensor]) -> PassCall:
    """The call with a part of some operands."""
    return call.with_arguments({name: picked(call.arguments[name], pick) for name in names})


def picked(tensor: Tensor, pick: Callable[[Tensor], Tensor]) -> Tensor:
    value, moved = parts(tensor)
    with values():
        value, moved = pick(value), None if moved is None else pick(moved)
    return value if moved is None else with_tangent(value, moved)


def decided_entries(call: PassCall, out: Tensor, decided: Tensor) -> tuple[PassCall, Tensor]:
    """Of a large call that works entry by entry those entries that were decided, or some of them."""
    names = [name for name in call.op.tensor_names if isinstance(call.arguments[name], Tensor)]
    shapes = [call.arguments[name].shape for name in names]
    if torch.broadcast_shapes(*shapes) != out.shape:
        return call, out
    with values():
        where = some_of(decided.expand(out.shape).flatten(), MANY)

    def pick(each: Tensor) -> Tensor:
        return each.expand(out.shape).reshape(-1).index_select(0, where) if each.ndim else each

    return part_of(call, names, pick), picked(out, pick)


def some_of(mask: Tensor, most: int) -> Tensor:
    """The positions of entries that are set, spread over all of them. A device is not waited for.

    There it is always ``most``: some of them twice if fewer are set, and the last position if none is.
    """
    if mask.is_cpu:
        found = mask.nonzero().squeeze(1)
        return found[:: 1 + len(found) // most]
    before = mask.cumsum(0, dtype=torch.int32)
    wanted = 1 + torch.arange(most, device=mask.device) * before[-1] // most
    return torch.searchsorted(before, wanted.int()).clamp_(max=mask.numel() - 1)


def _output(out: Any, number: int) -> Tensor:
    return out if isinstance(out, Tensor) else out[number]


class Along:
    """The operator's values at operands moved by parts of a step times their tangents.

    Attributes:
        length: the largest tangent.
        step: small beside the operands.

    Both are numbers on the CPU, and tensors where to read them would mean to wait.
    """

    def __init__(self, call: PassCall):
        self.call = call
        operands = {name: parts(each) for name, each in call.arguments.items() if is_floating(each)}
        with values():
            dtype = _computed_in([x for x, _ in operands.values()])
            # Bounds are rounded to the precision that the operator computes in: that is where its kinks are.
            self.here = {name: (x if x.ndim else x.to(dtype)).double() for name, (x, _) in operands.items()}
            self.bounds = {name: rounded(each, dtype) for name, each in call.arguments.items() if type(each) is float}
            self.ahead = {name: ahead.double() for name, (_, ahead) in operands.items() if ahead is not None}
            self.length, size = _largest(self.ahead.values()), _largest(self.here.values(), is_finite=True)
            if isinstance(self.length, Tensor) or isinstance(size, Tensor):
                self.length, size = (torch.as_tensor(each, dtype=torch.float64) for each in (self.length, size))
                size = size.to(self.length.device)
                self.step = STEP * torch.where((self.length > 0) & (size > 0), size / self.length, 1.0)
            else:
                self.step = STEP * (size / self.length if self.length > 0 and size > 0 else 1.0)

    def at(self, part: float) -> Any:
        with values():
            moved = {name: self._moved(x, self.ahead.get(name), part) for name, x in self.here.items()}
            return self.call.native({**self.call.arguments, **self.bounds, **moved})

    def _moved(self, x: Tensor, ahead: Tensor | None, part: float) -> Tensor:
        if ahead is None or part == 0:
            return x
        if isinstance(self.step, Tensor):
            return torch.addcmul(x, ahead, self.step.to(x.device), value=part)
        return torch.add(x, ahead, alpha=part * self.step)


def _computed_in(operands: Sequence[Tensor]) -> torch.dtype:
    """Single numbers are converted to the dtype of what has more entries."""
    many = [x.dtype for x in operands if x.ndim]
    return reduce(torch.promote_types, many) if many else torch.result_type(operands[0], operands[-1])


def _largest(tensors: Iterable[Tensor], is_finite: bool = False) -> Any:
    """The size of the largest entry; of those that are finite, if these alone count."""
    given = [each for each in tensors if each.numel()]
    if all(each.is_cpu for each in given):
        found = [each.abs().amax().item() for each in given]
        if not is_finite or all(map(isfinite, found)):
            return max(found, default=0.0)
    given = [each.nan_to_num(0, 0, 0) for each in given] if is_finite else given
    sizes = [torch.linalg.vector_norm(each, torch.inf) for each in given]
    largest = torch.stack([each.to(sizes[0].device) for each in sizes]).amax()
    return largest.item() if largest.is_cpu else largest


def _agrees(one: Tensor, here: Tensor, step: float, slope: Tensor, rest: float, dtype: torch.dtype) -> bool:
    """Whether the quotient of two values is the slope everywhere; both times the step."""
    with values():
        one, here, slope = one.double(), here.double(), slope.double()
        eps, share = 16 * torch.finfo(torch.float64).eps, SHARES.get(dtype, 1e-4)
        allowed = one.abs().mul_(eps).add_(slope.abs(), alpha=(share + eps) * step)
        if rest:
            allowed.add_(1e-6 * rest * step)
        return bool(((one - here).sub_(slope, alpha=step).abs_() <= allowed).all())


def _differs(near: list[Tensor], step: Any, slope: Tensor, rest: Any, dtype: torch.dtype) -> Tensor:
    """Whether quotients agree with each other, somewhere, and not with the slope."""
    with values():
        one, two, three, here = (each.double() for each in near)
        step, slope = (step.to(one.device) if isinstance(step, Tensor) else step), slope.double()
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
