"""What an element must satisfy: the value of the program is reached, and the gradient agrees with the slope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, isfinite

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from subgrad.clarke.linear import values
from subgrad.clarke.passes import Decide, lines
from subgrad.clarke.refused import Refused

SMALL = 10_000  # entries; what has more is checked in ways that cost less


def check_value(value: Tensor, reached: Tensor, current: Decide, program: str) -> None:
    """The branches taken must lead to the value of the program, or it jumps there; with the line of the program."""
    # What is taken for tied is not: values move by the tolerance times slopes that nobody knows.
    rounding = max(torch.finfo(value.dtype).eps, current.tol) ** 0.5
    if value.numel() == reached.numel() == 1 and _is_near(value, reached, rounding):
        return
    with values():
        reached = reached.to(value)
        near = torch.isclose(reached, value, rtol=rounding, atol=rounding) | ~value.isfinite()
        if bool(near.all()):
            return
        one, other = (each[~near].flatten()[0].item() for each in (value, reached))
    answered = lines(current.changed)
    if not answered:
        raise Refused(
            f"The program at {program} does not return the same when it is run again: {one:.6g}, then {other:.6g}."
        )
    raise Refused(
        f"The program jumps: it is {one:.6g} here and {other:.6g} a little further on, so that it has no generalised "
        f"gradient. What turns there: {'; '.join(answered[:5])}."
    )


def certified(
    gradient: Sequence[Tensor | None], ahead: Sequence[Tensor], slope: float, value: Tensor, doubtful: Sequence[str]
) -> float:
    """The gradient times the direction, which is the slope to what rounding allows; with the lines to name if not."""
    pairs = _pairs(gradient, ahead)
    product = _product(pairs)
    rounding = max((torch.finfo(v.dtype).eps for v in ahead), default=0.0)
    share = min(32 * rounding**0.5, 0.25)
    if abs(product - slope) <= share * abs(slope):  # as nearly always; the rest only allows for more
        return product
    size, length = _sizes(pairs)
    if size != size or size == float("inf"):
        return product  # nothing is hidden: the gradient itself is not finite
    # What cancels in the sums of a program leaves a rest, too.
    rest = 1000 * rounding * length * (1 + abs(value.item()))
    if not abs(product - slope) <= share * (size + abs(slope)) + rest:
        raise Refused(
            f"The gradient that torch derives is not that of the program's values: along the direction it says "
            f"{product:.6g}, and the values move by {slope:.6g}. A part of the program has a derivative of its own "
            "making: a straight-through trick, detach, no_grad, or a custom autograd.Function. Compute what is meant "
            f"to be constant outside of the function. Where to look: {'; '.join(doubtful)}."
        )
    return product


def numbers(tensors: Sequence[Tensor]) -> list[float]:
    """Scalars on a device, all read at once."""
    if all(each.is_cpu for each in tensors):  # where there is nothing to wait for
        return [each.item() for each in tensors]
    with values():
        return torch.stack([each.reshape(()).to(tensors[0].device, torch.float64) for each in tensors]).tolist()


def _is_near(value: Tensor, reached: Tensor, rounding: float) -> bool:
    one, other = numbers([value, reached])
    return not isfinite(one) or abs(other - one) <= rounding * (1 + abs(one))


@dataclass(frozen=True)
class _Pairs:
    """The gradient and the direction, leaf by leaf; those that are small are one vector for each device."""

    large: list[tuple[Tensor, Tensor]]
    small: list[tuple[Tensor, Tensor]]


def _pairs(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor]) -> _Pairs:
    large: list[tuple[Tensor, Tensor]] = []
    small: dict[torch.device, list[tuple[Tensor, Tensor]]] = {}
    with values():  # where no rule of ours is in the way
        for each, v in zip(gradient, ahead, strict=True):
            pair = torch.zeros_like(v) if each is None else each, v
            if v.numel() > SMALL and v.dtype in (torch.float32, torch.float64):
                large.append((pair[0].reshape(-1), v.reshape(-1)))
            else:
                small.setdefault(v.device, []).append(pair)
        return _Pairs(large, [_joined(pairs) for pairs in small.values()])


def _joined(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    gradient, ahead = (_flatten_dense_tensors(parts).double() for parts in zip(*pairs, strict=True))
    return gradient, ahead


def _product(pairs: _Pairs) -> float:
    with values():
        return sum(numbers([torch.dot(*pair) for pair in (*pairs.large, *pairs.small)]), 0.0)


def _sizes(pairs: _Pairs) -> tuple[float, float]:
    """The size of what is summed, and the length of the direction."""
    length = torch.linalg.vector_norm
    with values():
        # As large as for a direction that knows nothing of the gradient, which it does not.
        sizes = [length(each).double() * (length(v).double() / each.numel() ** 0.5) for each, v in pairs.large]
        sizes += [length(each * v) for each, v in pairs.small]
        return hypot(*numbers(sizes)), hypot(*numbers([length(v) for _, v in (*pairs.large, *pairs.small)]))
