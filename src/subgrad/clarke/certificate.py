"""What an element must satisfy: the value of the program is reached, and the gradient agrees with the slope."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from subgrad.clarke.linear import values
from subgrad.clarke.passes import Decide, lines
from subgrad.clarke.refused import Refused

SMALL = 10_000  # entries; what has more is checked in ways that cost less


def check_value(value: Tensor, reached: Tensor, current: Decide, program: str) -> None:
    """The branches taken must lead to the value of the program, or it jumps there; with the line of the program."""
    # What is taken for tied is not: values move by the tolerance times slopes that nobody knows.
    rounding = max(torch.finfo(value.dtype).eps, current.tol) ** 0.5
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
    product, size, length = _product(gradient, ahead)
    if size != size or size == float("inf"):
        return product  # nothing is hidden: the gradient itself is not finite
    rounding = max((torch.finfo(v.dtype).eps for v in ahead), default=0.0)
    # What cancels in the sums of a program leaves a rest, too.
    rest = 1000 * rounding * length * (1 + float(value.abs().max()))
    if not abs(product - slope) <= min(32 * rounding**0.5, 0.25) * (size + abs(slope)) + rest:
        raise Refused(
            f"The gradient that torch derives is not that of the program's values: along the direction it says "
            f"{product:.6g}, and the values move by {slope:.6g}. A part of the program has a derivative of its own "
            "making: a straight-through trick, detach, no_grad, or a custom autograd.Function. Compute what is meant "
            f"to be constant outside of the function. Where to look: {'; '.join(doubtful)}."
        )
    return product


def _product(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor]) -> tuple[float, float, float]:
    """The gradient times the direction, the size of what is summed, and the length of the direction."""
    pairs = [(torch.zeros_like(v) if each is None else each, v) for each, v in zip(gradient, ahead, strict=True)]
    large = [pair for pair in pairs if pair[0].numel() > SMALL and pair[0].dtype in (torch.float32, torch.float64)]
    small = [pair for pair in pairs if not any(pair is each for each in large)]
    sums, sizes, lengths = [], [], []
    with values():  # where no rule of ours is in the way
        for each, v in large:
            length = torch.linalg.vector_norm(v).double()
            sums.append(torch.dot(each.reshape(-1), v.reshape(-1)).double())
            # As large as for a direction that knows nothing of the gradient, which it does not.
            sizes.append(torch.linalg.vector_norm(each).double() * (length / each.numel() ** 0.5))
            lengths.append(length)
        for device in {v.device for _, v in small}:
            each, v = (
                torch.cat([part.reshape(-1).double() for part in parts])
                for parts in zip(*(pair for pair in small if pair[1].device == device), strict=True)
            )
            sums.append(torch.dot(each, v))
            sizes.append(torch.linalg.vector_norm(each * v))
            lengths.append(torch.linalg.vector_norm(v))
        if not sums:
            return 0.0, 0.0, 0.0
        found = torch.stack([each.to(sums[0].device) for each in (*sums, *sizes, *lengths)]).view(3, -1)
        total = torch.stack([found[0].sum(), *torch.linalg.vector_norm(found[1:], dim=1)])
    product, size, length = total.tolist()
    return product, size, length
