"""What an expression and its slope look like around a point, along one entry of what it is differentiated in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from subgrad.explain.difference import Difference
from subgrad.explain.numbers import Index, named
from subgrad.explain.program import INSTALLED, Explanation, Gradient, Own, Subject
from subgrad.explain.watch import Inputs, run

STEPS = 32  # on each side


@dataclass(frozen=True)
class Profile:
    """Values and slopes along one entry.

    Attributes:
        text: the expression.
        axis: the entry, in words.
        at: its value at the point; ``places`` lie around it, in order and without it.
        values, slopes: of the expression there, as the installed torch has them.
        value: at the point.
        picks: the slope at the point under each convention.
        own: the slopes at the point that the expression as a whole has, one for each element found.
    """

    text: str
    axis: str
    at: float
    places: tuple[float, ...]
    values: tuple[float, ...]
    slopes: tuple[float, ...]
    value: float
    picks: Mapping[str, float]
    own: tuple[float, ...]


def profile(
    found: Explanation, inputs: Inputs, radius: float = 1.0, dtype: torch.dtype = torch.float64, steps: int = STEPS
) -> Profile | None:
    """Look around the point of an explanation, along the entry whose slope is most in question.

    Returns:
        None where there is no entry to move.
    """
    axis = _axis([*found.gradients.values(), *found.own.elements], found.wrt)
    if axis is None:
        return None
    subject = Subject(found.text, inputs, found.wrt, dtype)
    return _profile(subject, axis, found.value, found.gradients, found.own, radius, steps)


def profiles(
    found: Difference, inputs: Inputs, radius: float = 1.0, dtype: torch.dtype = torch.float64, steps: int = STEPS
) -> tuple[Profile, ...]:
    """The same for two expressions, along the first entry in which they differ; none where there is no entry."""
    gaps = [gap for reason in found.reasons for gap in reason.gaps]
    everything = [gradient for each in found.gradients for gradient in each.values()]
    axis = (gaps[0].name, gaps[0].index) if gaps else _axis(everything, found.wrt)
    if axis is None:
        return ()
    subjects = [Subject(text, inputs, found.wrt, dtype) for text in found.texts]
    both = zip(subjects, found.values, found.gradients, found.own, strict=True)
    return tuple(_profile(subject, axis, value, each, own, radius, steps) for subject, value, each, own in both)


def _profile(
    subject: Subject,
    axis: tuple[str, Index],
    value: float,
    gradients: Mapping[str, Gradient],
    own: Own,
    radius: float,
    steps: int,
) -> Profile:
    name, index = axis
    at = float(subject.inputs[name][index])
    places = tuple(at + radius * number / steps for number in range(-steps, steps + 1) if number)
    looked = [_looked(subject, name, index, place) for place in places]
    return Profile(
        text=subject.expression.text,
        axis=named(name, index),
        at=at,
        places=places,
        values=tuple(value for value, _ in looked),
        slopes=tuple(slope for _, slope in looked),
        value=value,
        picks={convention: gradient[name][index] for convention, gradient in gradients.items()},
        own=tuple(dict.fromkeys(each[name][index] for each in own.elements)),
    )


def _axis(gradients: Sequence[Gradient], wrt: Sequence[str]) -> tuple[str, Index] | None:
    """The first entry in which gradients differ, else the first of all."""
    return next(_differing(gradients, wrt), next(_entries(gradients[0], wrt), None))


def _entries(gradient: Gradient, wrt: Sequence[str]) -> Iterator[tuple[str, Index]]:
    return ((name, index) for name in wrt for index, _ in gradient[name].items())


def _differing(gradients: Sequence[Gradient], wrt: Sequence[str]) -> Iterator[tuple[str, Index]]:
    for name, index in _entries(gradients[0], wrt):
        if len({repr(each[name][index]) for each in gradients}) > 1:
            yield name, index


def _looked(subject: Subject, name: str, index: Index, place: float) -> tuple[float, float]:
    """The value with one entry elsewhere, and the slope in it."""
    moved = subject.inputs[name].clone()
    moved[index] = place
    found = run(subject.evaluation, {**subject.inputs, name: moved}, subject.wrt, INSTALLED)
    return float(found.value), float(found.gradients[name][index])
