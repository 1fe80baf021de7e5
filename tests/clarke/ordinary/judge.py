"""What the library says of an ordinary program, against the program's own values nearby."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import torch
from torch import Tensor

import subgrad
from clarke.nearby import doubt_of_slope, doubts_of_gradient, slope
from clarke.ordinary.entries import Entry


class Outcome(Enum):
    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    DIED = "died"


SEEDS = (0, 1)


def judge(entry: Entry) -> tuple[Outcome, str]:
    """By several directions, each an element of its own; the first that is not right counts."""
    for seed in SEEDS:
        try:
            torch.manual_seed(0)
            gradient, direction, said = _element(entry, seed)
        except subgrad.clarke.Refused as error:
            return Outcome.REFUSED, str(error)
        except Exception as error:
            return Outcome.DIED, f"{type(error).__name__}: {error}"
        doubts = _doubts(entry, gradient, direction, said)
        if doubts:
            return Outcome.WRONG, f"seed {seed}: {'; '.join(doubts[:3])}"
    return Outcome.RIGHT, ""


def flat(tensors: Sequence[Tensor]) -> list[float]:
    return [each for tensor in tensors for each in tensor.detach().to_dense().flatten().tolist()]


def _element(entry: Entry, seed: int) -> tuple[list[float], list[float] | None, list[float]]:
    if not entry.closure:
        numbers = tuple(range(len(entry.arguments)))
        found = subgrad.element(entry.program, argnums=numbers, seed=seed)(*entry.arguments)
        return flat(found.gradient), flat(found.direction), [found.slope, found.product]
    for each in entry.arguments:
        each.grad = None
    subgrad.backward(entry.program, entry.arguments, seed=seed)  # type: ignore[arg-type]
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in entry.arguments]
    return flat(gradients), None, []


def _doubts(entry: Entry, gradient: list[float], direction: list[float] | None, said: list[float]) -> list[str]:
    x = entry.point()
    if direction is None:
        assert entry.smooth, f"{entry.name}: a closure does not say its direction, so it must be smooth in truth"
        return smooth_doubts(entry, gradient)
    found = [
        doubt_of_slope(entry.at, x, direction, each, what)
        for each, what in zip(said, ("slope", "product"), strict=True)
    ]
    doubts = [str(each) for each in found if each is not None]
    doubts += [str(each) for each in doubts_of_gradient(entry.at, x, direction, gradient)]
    return doubts + (smooth_doubts(entry, gradient) if entry.smooth else [])


def smooth_doubts(entry: Entry, gradient: list[float]) -> list[str]:
    """Coordinate by coordinate at the point itself, from both sides."""
    x = entry.point()
    found = []
    for at, each in enumerate(gradient):
        for side in (1.0, -1.0):
            unit = [side * (i == at) for i in range(len(x))]
            doubt = doubt_of_slope(entry.at, x, unit, side * each, f"entry {at}, side {side:+g}")
            found += [str(doubt)] if doubt else []
    return found


def is_smooth_by_values(entry: Entry) -> bool:
    """Whether one-sided derivatives are those of one linear form, in all coordinates and in directions between."""
    x, generator = entry.point(), torch.Generator().manual_seed(7)
    units = torch.eye(len(x), dtype=torch.float64)
    ahead = [slope(entry.at, x, unit.tolist()).value for unit in units]
    behind = [slope(entry.at, x, (-unit).tolist()).value for unit in units]
    if any(abs(a + b) > 1e-5 * (1 + abs(a)) for a, b in zip(ahead, behind, strict=True)):
        return False
    for _ in range(4):
        v = torch.randn(len(x), generator=generator, dtype=torch.float64).tolist()
        linear = sum(a * b for a, b in zip(ahead, v, strict=True))
        if abs(slope(entry.at, x, v).value - linear) > 1e-5 * (1 + abs(linear)):
            return False
    return True
