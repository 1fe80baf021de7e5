"""The sets of generalised derivatives, and the elements that named rules pick from them.

An *element* maps argument names to the weight with which the cotangent reaches them: ``{"self": 0.5}``.
Every set answers the same questions (``least``, ``mean``, ``left``, ``right``), so that conventions need not know which
kind they face.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from subgrad.kinks.expressions import Expression, number

# A weight is a tensor where the operator's own slope is one: the weight of `prelu`, the noise of `rrelu`.
Weight = float | torch.Tensor
Element = Mapping[str, Weight]


@dataclass(frozen=True)
class Slopes:
    """A corner of a function of ``self``: the set is the interval between the one-sided derivatives."""

    left_slope: Any  # a number, an expression of the arguments, or, for one call, a tensor
    right_slope: Any

    @property
    def candidates(self) -> tuple[str, ...]:
        return ("self",)

    def at(self, arguments: Mapping[str, Any]) -> Slopes:
        """The interval for one call: slopes that name arguments take their values."""
        return Slopes(number(self.left_slope, arguments), number(self.right_slope, arguments))

    def least(self, differentiated: Collection[str]) -> Element:
        return {"self": _nearest_to_zero(self.left_slope, self.right_slope)}

    def mean(self) -> Element:
        return {"self": (self.left_slope + self.right_slope) / 2}

    def left(self, differentiated: Collection[str]) -> Element:
        return {"self": self.left_slope}

    def right(self, differentiated: Collection[str]) -> Element:
        return {"self": self.right_slope}

    def with_weight(self, weight: float) -> Element:
        return {"self": weight}

    @property
    def varies(self) -> bool:
        """Whether every entry has a set of its own: slopes are tensors."""
        return isinstance(self.left_slope, torch.Tensor) or isinstance(self.right_slope, torch.Tensor)

    def __contains__(self, element: Element) -> bool:
        weight, slopes = element["self"], (self.left_slope, self.right_slope)
        if self.varies:  # without reading a tensor: what holds for all of its values
            return any(slope == weight for slope in slopes if not isinstance(slope, torch.Tensor))
        return min(slopes) <= weight <= max(slopes)

    def excludes(self, weight: float) -> torch.Tensor:
        """Which entries have sets without a weight, where slopes are tensors."""
        rising = (self.left_slope <= weight) & (self.right_slope >= weight)
        falling = (self.left_slope >= weight) & (self.right_slope <= weight)
        return ~(rising | falling)

    def of_entry(self, hit: torch.Tensor) -> Slopes:
        """The set of the first entry that is marked, in numbers."""

        def at_entry(slope: Any) -> Any:
            return slope.expand_as(hit)[hit][0].item() if isinstance(slope, torch.Tensor) else slope

        return Slopes(at_entry(self.left_slope), at_entry(self.right_slope))

    def __str__(self) -> str:
        slopes = (self.left_slope, self.right_slope)
        if all(isinstance(slope, int | float) for slope in slopes):
            return f"[{min(slopes):.5g}, {max(slopes):.5g}]"
        return "between " + " and ".join(
            "a tensor" if isinstance(slope, torch.Tensor) else str(slope) for slope in slopes
        )


def _nearest_to_zero(one: Any, other: Any) -> Weight:
    opposite, nearer = one * other <= 0, abs(one) < abs(other)
    if isinstance(opposite, torch.Tensor):
        return torch.where(opposite, 0, torch.where(nearer, one, other))
    return 0.0 if opposite else one if nearer else other


@dataclass(frozen=True)
class Ties:
    """Tied candidates of a selection: the set is the simplex over the tied ones.

    ``moved`` says who stays selected when one candidate is lowered or raised a little: ``{"self": (lowered, raised)}``.
    """

    moved: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(hash=False)

    @classmethod
    def largest(cls, one: str, other: str) -> Ties:
        return cls({one: ((other,), (one,)), other: ((one,), (other,))})

    @classmethod
    def smallest(cls, one: str, other: str) -> Ties:
        return cls({one: ((one,), (other,)), other: ((other,), (one,))})

    @property
    def candidates(self) -> tuple[str, ...]:
        return tuple(self.moved)

    def at(self, arguments: Mapping[str, Any]) -> Ties:
        return self

    def least(self, differentiated: Collection[str]) -> Element:
        # A tied constant puts 0 into the set of what is differentiated.
        if any(name not in differentiated for name in self.candidates):
            return self.share(())
        return self.mean()

    def mean(self) -> Element:
        return self.share(self.candidates)

    def left(self, differentiated: Collection[str]) -> Element:
        return self.share(self.moved[self._first(differentiated)][0])

    def right(self, differentiated: Collection[str]) -> Element:
        return self.share(self.moved[self._first(differentiated)][1])

    def _first(self, differentiated: Collection[str]) -> str:
        return next((name for name in self.candidates if name in differentiated), self.candidates[0])

    def with_weight(self, weight: float) -> Element:
        first, *others = self.candidates
        return {first: weight, **{name: (1 - weight) / len(others) for name in others}}

    def share(self, among: Collection[str]) -> Element:
        """The cotangent split evenly among some of the candidates."""
        return {name: 1 / len(among) if name in among else 0.0 for name in self.candidates}

    def __contains__(self, element: Element) -> bool:
        weights = [float(weight) for weight in element.values()]
        return min(weights) >= 0 and abs(sum(weights) - 1) < 1e-12

    def __str__(self) -> str:
        return "simplex over " + ", ".join(self.candidates)


@dataclass(frozen=True)
class Ball:
    """A Euclidean norm at zero: the set is the unit ball."""

    candidates: tuple[str, ...]

    def at(self, arguments: Mapping[str, Any]) -> Ball:
        return self

    def least(self, differentiated: Collection[str]) -> Element:
        return self.mean()

    def mean(self) -> Element:
        return dict.fromkeys(self.candidates, 0.0)

    def left(self, differentiated: Collection[str]) -> Element:
        return self._along(differentiated, -1.0)

    def right(self, differentiated: Collection[str]) -> Element:
        return self._along(differentiated, 1.0)

    def _along(self, differentiated: Collection[str], weight: float) -> Element:
        first = next((name for name in self.candidates if name in differentiated), self.candidates[0])
        return {**self.mean(), first: weight}

    def with_weight(self, weight: float) -> Element:
        return {**self.mean(), self.candidates[0]: weight}

    def __contains__(self, element: Element) -> bool:
        return sum(float(weight) ** 2 for weight in element.values()) <= 1

    def __str__(self) -> str:
        return "unit ball over " + ", ".join(self.candidates)


@dataclass(frozen=True)
class Joint:
    """A kink in many entries at once: ties inside a tensor, a norm of a vector at zero.

    A vector has no left and right, and no single number is an element: conventions take the least element or the middle
    of the set, or leave the place to torch.
    """

    hull: str  # the set, in words
    candidates: tuple[str, ...] = ("self",)
    middle: bool = True  # whether the least element is the middle of the set too

    def at(self, arguments: Mapping[str, Any]) -> Joint:
        return self

    def least(self, differentiated: Collection[str]) -> Element:
        return LEAST

    def mean(self) -> Element | None:
        return LEAST if self.middle else None

    def left(self, differentiated: Collection[str]) -> None:
        return None

    def right(self, differentiated: Collection[str]) -> None:
        return None

    def __str__(self) -> str:
        return self.hull


# The element of least norm of a joint kink, which has no weight for whole arguments.
LEAST: Element = {}
# What other frameworks return there instead, which need not be an element: told apart by their weights of an entry.
OTHERS: Mapping[str, Element] = {
    "nan": {"entry": float("nan")},
    "nan if live": {"entry": float("nan")},
    "right": {"entry": 1.0},
    "whole": {"entry": 2.0},
}


@dataclass(frozen=True)
class Jump:
    """Discontinuous or not Lipschitz there: no set of generalised derivatives exists, and no convention interferes.

    Attributes:
        what: it is, in words.
        along: the argument in which there is a value on either side; None for poles and what is steep or jumps around
            a point.
        derived: whether torch has a derivative of the operator; where not, it is flat beside the jump.
    """

    what: str = "jump"
    candidates: tuple[str, ...] = ()
    along: str | None = "self"
    derived: bool = True

    def __str__(self) -> str:
        return f"none ({self.what})"


@dataclass(frozen=True)
class Pole(Jump):
    """An infinite slope: torch returns infinity, or nan where the cotangent is 0, and no finite number is an element.

    Attributes:
        order: the slope grows like the distance to the place, to the power of minus this; 0 for a logarithm.
        side: where the function has values: ``"above"`` or ``"below"`` the place, or on ``"both"`` sides.
        finite: whether the value is finite there, so that nothing but the slope shows the place: below order 1.
    """

    what: str = "not Lipschitz"
    along: str | None = None
    order: float | Expression = 1.0
    side: str = "above"
    finite: bool = True

    def __str__(self) -> str:
        where = "on both sides" if self.side == "both" else self.side
        return f"none (infinite slope of order {self.order}, {where})"


Set = Slopes | Ties | Ball | Joint | Jump
