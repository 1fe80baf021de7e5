"""What the library says of a program at its point, against what is true there, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import torch
from torch import Tensor

import subgrad
from clarke.germs import Gradient, Number, directional_derivative, in_hull, pieces, value_of
from clarke.random_programs import Program

ROUNDING = 1e-9  # norms divide, ties may be shared by thirds; pieces that differ do so by more than 1e-8
MOST = 1000  # cells of a program; longer ones are left out


class Outcome(Enum):
    PIECE = "the gradient of a piece"
    ONLY = "the gradient, the only one"
    OUTSIDE = "not the gradient of any piece"
    WRONG_VALUE = "a value that is not f(x)"
    WRONG_DERIVATIVE = "a directional derivative that is wrong"
    RAISED = "raised an error"

    @property
    def is_miss(self) -> bool:
        return self not in (Outcome.PIECE, Outcome.ONLY)


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    pieces: int
    torch_is_outside: bool  # of the hull
    said: str = ""


def exact(tensor: Tensor) -> tuple[Number, ...] | None:
    """The entries, exactly; None if one of them is no number."""
    entries = tensor.detach().flatten().tolist()
    return tuple(map(Fraction, entries)) if all(map(math.isfinite, entries)) else None


def torch_is_outside(program: Program, found: dict[Gradient, object]) -> bool:
    try:
        element = exact(torch.func.grad(program.compiled())(program.tensor()))
    except RuntimeError:  # of an operator for which this version has no derivative
        return False
    return element is None or not in_hull(element, found)


def examine(program: Program, seed: int, direction: tuple[int, ...]) -> Verdict:
    """The element for a seed, the value, and the derivative in a direction whose tangents tie as well."""
    found = pieces(program, program.point, MOST)
    outcome, said = _outcome(program, seed, direction, found)
    return Verdict(outcome, len(found), torch_is_outside(program, found), said)


def _outcome(program: Program, seed: int, direction: tuple[int, ...], found: dict) -> tuple[Outcome, str]:
    function, x = program.compiled(), program.tensor()
    plain = function(x)
    assert exact(plain) == (value_of(program, program.point),)
    along = torch.tensor(direction, dtype=x.dtype)
    try:
        element, value = subgrad.value_and_grad(function, seed=seed)(x)[::-1]
        again, derivative = subgrad.jvp(function, (x,), (along,))
    except Exception as error:
        return Outcome.RAISED, f"{type(error).__name__}: {error}"
    if not distance(element, found) < ROUNDING:
        return Outcome.OUTSIDE, f"{element.tolist()} for seed {seed}, not in {_shown(found)}"
    if not (torch.equal(value, plain) and torch.equal(again, plain)):
        return Outcome.WRONG_VALUE, f"{value.item()} and {again.item()}, not {plain.item()}"
    true = directional_derivative(program, program.point, direction)
    if not abs(derivative.item() - true) < ROUNDING * max(1, abs(true)):
        return Outcome.WRONG_DERIVATIVE, f"{derivative.item()} in direction {direction}, not {float(true)}"
    return (Outcome.ONLY if len(found) == 1 else Outcome.PIECE), ""


def distance(element: Tensor, found: dict[Gradient, object]) -> float:
    """To the nearest gradient of a piece, relative to its size if that is above 1."""
    true = element.new_tensor(_shown(found))
    return float(((true - element).abs() / true.abs().clamp(min=1)).amax(1).min())


def _shown(found: dict) -> list[list[float]]:
    return [[float(each) for each in gradient] for gradient in found]
