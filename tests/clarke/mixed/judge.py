"""What the library says of a random program, against the values of the program nearby."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from threading import current_thread, main_thread
from typing import Any

import torch

import subgrad
from clarke.mixed.programs import Program
from clarke.mixed.table import mp
from clarke.nearby import Doubt, doubt_of_slope, doubts_of_gradient, jumps

LONGEST = 30  # seconds for one program, which may not end


class Outcome(Enum):
    RIGHT = "right: gradient, slope and one-sided derivative"
    NO_GRADIENT = "refused, and the values do jump or have an infinite slope"
    REFUSED = "refused"
    WRONG = "wrong"
    DIED = "died of another error"
    UNCLEAR = "undecided by the values, even in 50 digits"

    @property
    def is_miss(self) -> bool:
        return self in (Outcome.WRONG, Outcome.DIED, Outcome.UNCLEAR)


def without_places(said: str) -> str:
    """The first words of a message, without places and numbers."""
    text = re.sub(r" ?\b[aA]t (<[^>]*>|\S+?):\d+", "", said).strip()
    text = re.sub(r"-?\d[\d.e+-]*|\bnan\b|\binf\b", "N", text)
    return " ".join(text.split()[:18])


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    said: str = ""
    kinks: int = 0  # how many operators met one

    @property
    def cause(self) -> str:
        """What was said, without places and numbers."""
        if self.outcome in (Outcome.WRONG, Outcome.UNCLEAR):
            return self.said.partition(":")[0]
        return without_places(self.said)


class TakesTooLong(Exception):  # noqa: N818
    """The program does not end."""


@contextmanager
def limited(seconds: int = LONGEST) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TakesTooLong(f"It takes longer than {seconds} seconds")

    if current_thread() is not main_thread():  # which alone gets signals
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def examine(program: Program, seed: int, direction: Sequence[int]) -> Verdict:
    """The element for a seed, then the derivative in a direction of small integers, in which tangents tie as well."""
    verdict = _element(program, seed)
    other = _derivative(program, direction) if verdict.outcome is Outcome.RIGHT else RIGHT
    return verdict if other.outcome is Outcome.RIGHT else other


def _element(program: Program, seed: int) -> Verdict:
    try:
        with limited():
            found = subgrad.element(program.function, seed=seed)(program.tensor())
            plain = program.function(program.tensor().requires_grad_())
    except subgrad.clarke.Refused as error:
        return _refused(program, f"{error}")
    except Exception as error:
        return Verdict(Outcome.DIED, f"{type(error).__name__}: {error}")
    if not torch.equal(found.value, plain.detach()):
        return Verdict(Outcome.WRONG, f"value {found.value.item()}, not {plain.item()}")
    x, v, gradient = list(program.point), found.direction.tolist(), found.gradient.tolist()
    said = [("slope", found.slope), ("product", found.product)]
    doubts = [doubt_of_slope(program.value, x, v, each, what) for what, each in said]
    doubts += doubts_of_gradient(program.value, x, v, gradient)
    if any(doubts):
        return replace(_in_many_digits(program, v, said, gradient), kinks=found.kinks)
    if jumping(program):
        return Verdict(Outcome.WRONG, "returned where the values jump")
    return Verdict(Outcome.RIGHT, kinks=found.kinks)


RIGHT = Verdict(Outcome.RIGHT)


def _in_many_digits(
    program: Program, v: Sequence[Any], said: list[tuple[str, float]], gradient: list[float]
) -> Verdict:
    """Where float64 leaves a doubt."""
    x, v = [mp.mpf(each) for each in program.point], [mp.mpf(each) for each in v]
    one = mp.mpf(1)
    found: list[Doubt | None] = [doubt_of_slope(program.exact, x, v, each, what, one) for what, each in said]
    found += doubts_of_gradient(program.exact, x, v, gradient, one)
    doubts = [each for each in found if each is not None]
    if not doubts:
        return RIGHT
    if jumping(program):
        return Verdict(Outcome.WRONG, "returned where the values jump")
    outcome = Outcome.WRONG if any(each.is_sharp for each in doubts) else Outcome.UNCLEAR
    return Verdict(outcome, "; ".join(map(str, doubts[:3])))


def _derivative(program: Program, direction: Sequence[int]) -> Verdict:
    v = [float(each) for each in direction]
    ahead = torch.tensor(v, dtype=torch.float64)
    try:
        with limited():
            value, found = subgrad.jvp(program.function, (program.tensor(),), (ahead,))
    except subgrad.clarke.Refused as error:
        return _refused(program, f"jvp: {error}", [v])
    except Exception as error:
        return Verdict(Outcome.DIED, f"jvp: {type(error).__name__}: {error}")
    if value.item() not in (program.value(program.point), program.function(program.tensor().requires_grad_()).item()):
        return Verdict(Outcome.WRONG, "jvp: another value")  # than torch's, with or without a graph
    if not doubt_of_slope(program.value, list(program.point), v, found.item()):
        return RIGHT
    return _in_many_digits(program, v, [("jvp", found.item())], [])


def _refused(program: Program, said: str, more: Sequence[Sequence[float]] = ()) -> Verdict:
    return Verdict(Outcome.NO_GRADIENT if jumping(program, more) else Outcome.REFUSED, said)


def jumping(program: Program, more: Sequence[Sequence[float]] = ()) -> bool:
    """Whether the values are not Lipschitz at the point, by rays in several directions."""
    generator = torch.Generator().manual_seed(11)
    shape = (6, len(program.point))
    rays = [*more, *torch.randn(shape, generator=generator, dtype=torch.float64).tolist()]
    if not jumps(program.value, list(program.point), rays):
        return False
    exact = [[mp.mpf(each) for each in ray] for ray in rays]
    return jumps(program.exact, [mp.mpf(each) for each in program.point], exact, mp.mpf(1))
