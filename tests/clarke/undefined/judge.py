"""What the library says of a random program, against the values of the program very near the point, in 320 digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any

import torch

import subgrad
from clarke.mixed.judge import limited, without_places
from clarke.undefined.numbers import mp
from clarke.undefined.programs import Program
from subgrad.clarke import Refused

STEPS = mp.mpf(10) ** -30, mp.mpf(10) ** -36  # along a ray
ASIDE = mp.mpf(10) ** -10  # of the step
RAYS, FEW, MOST = 10, 3, 300
SAME = 1e-9  # numbers of the truth that differ by less are equal: it is known to the square root of the step
SHARE = {torch.float64: 2e-6, torch.float32: 2e-3}  # by which a gradient may miss it, of its largest entry
Vector = list[Any]


class Truth(Enum):
    GRADIENT = "has a gradient"
    ONE_SIDED = "has a gradient, and is not defined all around"
    KINK = "has a kink"
    NONE = "has an infinite slope, or jumps"


class Outcome(Enum):
    RIGHT = "right"
    NO_GRADIENT = "refused, and the slope is infinite or the values jump"
    REFUSED = "refused, though it has a gradient"
    REFUSED_KINK = "refused at a kink"
    WRONG = "wrong"
    NAN = "nan"
    DIED = "died of another error"

    @property
    def is_miss(self) -> bool:
        return self in (Outcome.WRONG, Outcome.NAN, Outcome.DIED)


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    truth: Truth
    said: str = ""

    @property
    def cause(self) -> str:
        return self.said.partition(":")[0] if self.outcome is Outcome.WRONG else without_places(self.said)


@dataclass(frozen=True)
class Ray:
    """What the values do along a ray: the slope and the gradient, or none if they have no limit."""

    direction: Vector
    slope: float | None
    gradient: tuple[float, ...] | None


def value(program: Program, point: Vector) -> Any:
    try:
        found = program.exact(point)
    except (ValueError, ZeroDivisionError, OverflowError):
        return mp.nan
    return found if not isinstance(found, mp.mpc) else mp.nan


def _moved(x: Sequence[Any], v: Sequence[Any], t: Any) -> Vector:
    return [a + t * b for a, b in zip(x, v, strict=True)]


def _ray(program: Program, v: Sequence[Any]) -> Ray | None:
    return ray(program, [mp.mpf(each) for each in v])


def ray(program: Program, v: Sequence[Any]) -> Ray | None:
    """None if the program is not defined along it."""
    x = [mp.mpf(each) for each in program.point]
    here = value(program, x)
    near = [value(program, _moved(x, v, t)) for t in STEPS]
    if not all(map(mp.isfinite, near)):
        return None
    slope = _limit([(each - here) / t for each, t in zip(near, STEPS, strict=True)])
    entries = []
    for at in range(len(x)):
        unit = [mp.mpf(at == other) for other in range(len(x))]
        ends = [[value(program, _moved(_moved(x, v, t), unit, side * ASIDE * t)) for side in (1, -1)] for t in STEPS]
        if not all(mp.isfinite(each) for pair in ends for each in pair):
            return None
        entries.append(_limit([(a - b) / (2 * ASIDE * t) for (a, b), t in zip(ends, STEPS, strict=True)]))
    whole = None if slope is None or None in entries else tuple(map(float, entries))
    return Ray(list(v), None if slope is None else float(slope), whole)


def _limit(quotients: Vector) -> Any:
    further, nearer = quotients
    return nearer if abs(further - nearer) <= SAME * (1 + abs(nearer)) else None


def rays(program: Program, more: Sequence[Sequence[Any]] = ()) -> list[Ray | None]:
    generator = Random(11)
    drawn = [[round(generator.gauss(0, 1), 3) for _ in program.point] for _ in range(RAYS)]
    found = [_ray(program, v) for v in (*more, *drawn, list(map(abs, drawn[0])), [-abs(each) for each in drawn[0]])]
    for _ in range(MOST):  # the program may be defined in a cone alone
        if sum(each is not None for each in found) >= FEW:
            break
        found.append(_ray(program, [round(generator.gauss(0, 1), 3) for _ in program.point]))
    return found


def truth(found: Sequence[Ray | None]) -> Truth:
    defined = [each for each in found if each is not None]
    gradients = [each.gradient for each in defined]
    if not defined or None in gradients:
        return Truth.NONE
    if not all(_are_same(each, gradients[0], SAME * 10) for each in gradients):
        return Truth.KINK
    return Truth.GRADIENT if len(defined) == len(found) else Truth.ONE_SIDED


def _are_same(one: Sequence[float] | None, other: Sequence[float] | None, share: float) -> bool:
    if one is None or other is None:
        return False
    scale = max(1.0, *map(abs, other))
    return all(abs(a - b) <= share * scale for a, b in zip(one, other, strict=True))


def examine(program: Program, seed: int = 0) -> dict[str, Verdict]:
    """What every way to ask for the gradient says, and for the derivative along a ray: `grad` first."""
    found = rays(program)
    verdict = examined_gradient(program, seed, found)
    asked = {"grad": verdict}
    if verdict.outcome is Outcome.RIGHT:
        asked |= {name: _asked(partial(ask, program, seed, found), verdict.truth) for name, ask in WAYS.items()}
        asked["grad in float32"] = examined_gradient(program, seed, found, torch.float32)
    return asked


def _asked(ask: Callable[[], str], kind: Truth) -> Verdict:
    try:
        with limited():
            said = ask()
    except Refused as error:
        return Verdict(Outcome.REFUSED_KINK if kind is Truth.KINK else Outcome.REFUSED, kind, f"{error}")
    except Exception as error:
        return Verdict(Outcome.DIED, kind, f"{type(error).__name__}: {error}")
    return Verdict(Outcome.NAN if said == "nan" else Outcome.WRONG if said else Outcome.RIGHT, kind, said)


def examined_gradient(
    program: Program, seed: int, found: Sequence[Ray | None], dtype: torch.dtype = torch.float64
) -> Verdict:
    kind = truth(found)
    try:
        with limited():
            gradient = subgrad.grad(program.function, seed=seed)(program.tensor().to(dtype))
    except Refused as error:
        outcome = {Truth.NONE: Outcome.NO_GRADIENT, Truth.KINK: Outcome.REFUSED_KINK}.get(kind, Outcome.REFUSED)
        return Verdict(outcome, kind, str(error))
    except Exception as error:
        return Verdict(Outcome.DIED, kind, f"{type(error).__name__}: {error}")
    if gradient.isnan().any():
        return Verdict(Outcome.NAN, kind, "is nan")
    said = gradient.tolist()
    if kind is Truth.NONE:
        return Verdict(Outcome.WRONG, kind, f"returned where there is none: {said}")
    if kind is Truth.KINK and not any(each and _are_same(said, each.gradient, SHARE[dtype]) for each in found):
        found = [ray(program, v) for v in _directions(program, seed, dtype)]
    if not any(each and _are_same(said, each.gradient, SHARE[dtype]) for each in found):
        known = [each.gradient for each in found if each]
        return Verdict(Outcome.WRONG, kind, f"another gradient: {said}, the values say {known[:2]}")
    return Verdict(Outcome.RIGHT, kind)


def _directions(program: Program, seed: int, dtype: torch.dtype) -> list[Vector]:
    """That which decides for this seed, and many more."""
    generator = Random(13)
    drawn = [[mp.mpf(round(generator.gauss(0, 1), 3)) for _ in program.point] for _ in range(60)]
    try:
        found = subgrad.element(program.function, seed=seed)(program.tensor().to(dtype))
    except Refused:
        return drawn
    return [[mp.mpf(each) for each in found.direction.tolist()], *drawn]


def _same(said: torch.Tensor, other: torch.Tensor) -> str:
    if said.isnan().any():
        return "nan"
    scale = 2e-6 * max(1.0, float(other.abs().max()))
    return "" if bool(((said - other).abs() <= scale).all()) else f"differs: {said.tolist()}, not {other.tolist()}"


def _again(program: Program, seed: int, found: Any) -> str:
    grad = subgrad.grad(program.function, seed=seed)
    first = grad(program.tensor())
    return _same(grad(program.tensor()), first)


def _elsewhere_before(program: Program, seed: int, found: Any) -> str:
    """What is remembered of another point does no harm."""
    grad = subgrad.grad(program.function, seed=seed)
    with suppress(Refused):  # it need not be defined there
        grad(program.tensor() + 0.0625)
    return _same(grad(program.tensor()), subgrad.grad(program.function, seed=seed)(program.tensor()))


def _by_value_and_grad(program: Program, seed: int, found: Any) -> str:
    of_program, gradient = subgrad.value_and_grad(program.function, seed=seed)(program.tensor())
    if not torch.equal(of_program, program.function(program.tensor())):
        return f"another value: {of_program.item()}"
    return _same(gradient, subgrad.grad(program.function, seed=seed)(program.tensor()))


def _by_backward(program: Program, seed: int, found: Any) -> str:
    x = program.tensor().requires_grad_()
    subgrad.backward(lambda: program.function(x), x, seed=seed)
    gradient = torch.zeros_like(x) if x.grad is None else x.grad
    return _same(gradient, subgrad.grad(program.function, seed=seed)(program.tensor()))


def _by_element(program: Program, seed: int, found: Any) -> str:
    element = subgrad.element(program.function, seed=seed)(program.tensor())
    if not abs(element.slope - element.product) <= 1e-5 * (1 + abs(element.product)):
        return f"the slope is not the product: {element.slope}, {element.product}"
    along = _ray(program, element.direction.tolist())
    if along is None or along.gradient is None:
        return "in a direction that has none"
    return _same(element.gradient, torch.tensor(along.gradient, dtype=torch.float64))


def _by_jvp(program: Program, seed: int, found: Sequence[Ray | None]) -> str:
    along = next(each for each in found if each is not None)
    v = torch.tensor([float(each) for each in along.direction], dtype=torch.float64)
    derivative = subgrad.jvp(program.function, (program.tensor(),), (v,))[1]
    return _same(derivative[None], torch.tensor([along.slope], dtype=torch.float64))


WAYS: dict[str, Callable[[Program, int, Sequence[Ray | None]], str]] = {
    "the same, called again": _again,
    "the same, called elsewhere before": _elsewhere_before,
    "value_and_grad": _by_value_and_grad,
    "backward": _by_backward,
    "element": _by_element,
    "jvp": _by_jvp,
}
