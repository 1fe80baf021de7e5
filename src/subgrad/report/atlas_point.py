"""A place of the survey as the atlas shows it: a function of one entry, its slopes on both sides, entries at stake."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply.use import use
from subgrad.conventions import Convention
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import call_by_name
from subgrad.kinks.sets import Jump, Slopes
from subgrad.survey import Finding, Place
from subgrad.survey.finding import Measured
from subgrad.survey.joint import JointCall

STEP = 1e-5  # of one-sided differences, which take two of them
SAME = 1e-6
WIDEST = 6  # entries that are named one by one


class Entry(NamedTuple):
    """An entry of an argument: its place in it, counted through; None where the argument is a number there."""

    name: str
    index: int | None
    label: str


@dataclass(frozen=True)
class WeighedCall(JointCall):
    """A call whose result is weighed with a cotangent, since one entry of it is not all that a kink reaches."""

    cotangent: tuple[float, ...] = ()

    @property
    def function(self) -> Callable[..., Tensor]:
        def weighed(*inputs: Tensor) -> Tensor:
            arguments = {**self.call, **dict(zip(self.names, inputs, strict=True))}
            result = call_by_name(self.kink.op, arguments)
            first = result if isinstance(result, Tensor) else result[0]
            return (first.flatten() * torch.tensor(self.cotangent, dtype=first.dtype)).sum()

        return weighed


@dataclass(frozen=True)
class Point:
    """A place of the survey; with the cotangent of a result of many entries, where it is shown as a whole."""

    place: Place
    cotangent: tuple[float, ...] = ()

    @property
    def is_entrywise(self) -> bool:
        return self.place.kink.op in KINKS.entrywise

    @property
    def has_set(self) -> bool:
        return not isinstance(self.place.kink.set, Jump)

    @cached_property
    def _joint(self) -> JointCall:
        kink, call = self.place.kink, self.place.call
        return WeighedCall(kink, call, self.cotangent) if self.cotangent else JointCall(kink, call)

    @cached_property
    def finding(self) -> Finding:
        return self.place.finding("torch")

    def element(self, like: str | Convention) -> Measured | None:
        """What a convention returns here in reverse mode."""
        if not self.cotangent:
            return self.place.element(like)
        with use(like):
            return self._joint.reverse(1.0)

    @cached_property
    def least(self) -> Measured | None:
        """What the documented rule asks for."""
        documented = self.finding.documented
        return documented if documented is None or not self.cotangent else self._joint.least()

    # Along one entry.

    def along(self, entry: Entry) -> Callable[[float], float]:
        """The value as a function of how far the entry is moved."""

        def moved(by: float) -> float:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(0)  # rrelu draws its slopes
                value = self._entrywise(entry, by) if entry.index is None else self._of_many(entry, by)
            return float(value.real) if value.is_complex() else float(value)

        return moved

    def _entrywise(self, entry: Entry, by: float) -> Tensor:
        call = self.place.call
        return call_by_name(self.place.kink.op, {**call, entry.name: call[entry.name] + by})

    def _of_many(self, entry: Entry, by: float) -> Tensor:
        inputs = [each.clone() for each in self._joint.inputs]
        inputs[self._joint.names.index(entry.name)].view(-1)[entry.index] += by
        return self._joint.function(*inputs)

    def slopes(self, entry: Entry) -> tuple[float, float] | None:
        """To the left and to the right along an entry; None where there are none."""
        if not self.has_set:
            return None
        if entry.index is None and isinstance(self.place.kink.set, Slopes):
            exact = self.place.kink.set.at(self.place.call)
            return float(exact.left_slope), float(exact.right_slope)
        value = self.along(entry)
        left, right = (_difference(value, step) for step in (-STEP, STEP))
        return (left, right) if math.isfinite(left) and math.isfinite(right) else None

    # Entries.

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Those at stake: along which the function bends, or that the least element weighs."""
        if self.is_entrywise:
            names = self.place.differentiated
            return tuple(Entry(name, None, name) for name in names)
        every = [
            Entry(name, index, entry_label(name, index, each.shape))
            for name, each in zip(self._joint.names, self._joint.inputs, strict=True)
            for index in range(each.numel())
        ]
        if not self.has_set:
            named = [each for each in every if re.search(rf"\b{each.name}\b", self.place.kink.at)]
            return tuple((named or every)[:1])
        bent = tuple(each for each in every if self._bends(each))
        weighed = tuple(each for each in every if self.least and _entry(self.least, each))
        return bent or weighed or tuple(every)

    def _bends(self, entry: Entry) -> bool:
        found = self.slopes(entry)
        return found is not None and abs(found[0] - found[1]) > SAME

    def weights(self, measured: Measured | None) -> tuple[float, ...] | None:
        """Of an element those of the entries at stake."""
        if measured is None:
            return None
        return tuple(float(_entry(measured, each)) for each in self.entries)


def _entry(measured: Mapping[str, Any], entry: Entry) -> float:
    return measured[entry.name] if entry.index is None else measured[entry.name][entry.index]


def entry_label(name: str, index: int, shape: Sequence[int]) -> str:
    """``self[1, 0]``, of an entry that is counted through."""
    if not shape:
        return name
    places = []
    for size in reversed(shape):
        index, place = divmod(index, size)
        places.append(str(place))
    return f"{name}[{', '.join(reversed(places))}]"


def _difference(value: Callable[[float], float], step: float) -> float:
    """A one-sided derivative, of second order in the step."""
    at, near, far = value(0.0), value(step / 2), value(step)
    return (4 * near - far - 3 * at) / step
