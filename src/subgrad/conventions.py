"""Which: how a convention picks one element from the set of a kink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from subgrad.kinks import KINKS, Kink
from subgrad.kinks.expressions import names
from subgrad.kinks.frameworks import FRAMEWORKS, pick
from subgrad.kinks.kink import ALIASES, unknown
from subgrad.kinks.sets import LEAST, OTHERS, Ball, Element, Joint, Jump, Slopes, Ties


@dataclass(frozen=True)
class Spot:
    """A kink met by one call: the set with its numbers, and the arguments that are differentiated."""

    kink: Kink
    set: Slopes | Ties | Ball | Joint
    differentiated: Collection[str]

    @classmethod
    def of(cls, kink: Kink, arguments: Mapping[str, Any], differentiated: Collection[str]) -> Spot:
        if isinstance(kink.set, Jump):
            raise TypeError(f"{kink.name} jumps at {kink.place}: no set of generalised derivatives to pick from")
        return cls(kink, kink.set.at(arguments), differentiated)


# A rule returns an element, or None to leave the place to the installed torch.
Rule = Callable[[Spot], "Element | None"]


def torch_element(spot: Spot, version: str) -> Element | None:
    """What torch picks in reverse mode, by the table; None where that is no element, or not one in all modes."""
    picks = spot.kink.torch_picks(version)
    if picks is None:
        return None
    if isinstance(spot.set, Joint):
        return LEAST if picks == "least" else None
    if isinstance(spot.set, Ties):
        return spot.set.share(picks)
    if isinstance(picks, str):
        return RULES[picks](spot)
    return spot.set.with_weight(picks)


def framework_element(spot: Spot, framework: str) -> Element | None:
    """What another framework picks, which may be no element of the set; None where it has no such operation."""
    picked = pick(spot.kink, framework)
    if picked is None:
        return None
    if isinstance(spot.set, Joint):
        return LEAST if picked == "least" else OTHERS.get(picked)
    if isinstance(picked, Mapping):
        return cast("Mapping[str, float]", picked)
    if isinstance(spot.set, Ties):
        return spot.set.share(picked)
    if isinstance(spot.set, Slopes) and picked == "sum":
        return {"self": spot.set.left_slope + spot.set.right_slope}
    return RULES[picked](spot) if isinstance(picked, str) else spot.set.with_weight(picked)


def _of_framework(name: str) -> Rule:
    return lambda spot: framework_element(spot, name)


def _pass_through(spot: Spot) -> Element | None:
    if spot.kink.family != "clamp" or isinstance(spot.set, Joint):
        return None
    return spot.set.with_weight(1.0)


RULES: dict[str, Rule] = {
    "min-norm": lambda spot: spot.set.least(spot.differentiated),
    "documented": lambda spot: spot.set.least(spot.set.candidates),  # every Tensor argument counts, constant or not
    "torch": lambda spot: None,
    "torch-2.13": lambda spot: torch_element(spot, "2.13"),
    "torch-2.14": lambda spot: torch_element(spot, "2.14"),
    **{name: _of_framework(name) for name in FRAMEWORKS},
    "left": lambda spot: spot.set.left(spot.differentiated),
    "right": lambda spot: spot.set.right(spot.differentiated),
    "mean": lambda spot: spot.set.mean(),
    "pass-through": _pass_through,
    "straight-through": _pass_through,  # and beyond the bounds: `Convention.is_straight_through`
}
# Of a surrogate the gradient differs away from kinks, too: it is no choice of elements, and explains none.
SURROGATES = ("straight-through",)
CHOICES = tuple(name for name in RULES if name not in SURROGATES)
# Versions of torch that return what another one does, at every sample of every row: other names of its convention.
SAME_VERSIONS = {"torch-2.11": "torch-2.13", "torch-2.12": "torch-2.13", "torch-2.15": "torch-2.14"}
NAMES = (*RULES, *SAME_VERSIONS)


@dataclass(frozen=True, init=False, repr=False)
class Convention:
    """A rule that picks an element for every kink: a named base, and what single operators do instead.

    >>> Convention("min-norm", relu=1.0, clamp="pass-through")
    Convention('min-norm', clamp='pass-through', relu=1.0)

    Args:
        base: the name of a convention, or a ``Convention`` to start from.
        operators: what single operators do instead, by name: another convention, or a number, which is the slope at a
            corner and the weight of the first argument at a tie (the others share the rest).
        overrides: the same as pairs.
        surrogate: allow numbers outside the set of the kink: slopes that are no subgradients. ``straight-through`` is a
            surrogate too, and says so: it passes the gradient beyond the bounds of clamps, where the slope is 0.
        strong_zero: where a slope is infinite or nan and the cotangent is exactly 0, the gradient is 0 and not nan.
            That is the gradient of a branch that is not taken; of a live one, as ``x.sqrt() ** 2`` at 0, a surrogate.

    Raises:
        ValueError: for a name that is not known, or a number outside the set of the kink.
    """

    base: str
    overrides: tuple[tuple[str, str | float], ...]
    surrogate: bool
    strong_zero: bool

    def __init__(
        self,
        base: str | Convention,
        overrides: Iterable[tuple[str, str | float]] = (),
        surrogate: bool = False,
        strong_zero: bool = False,
        **operators: str | float,
    ):
        chosen = {_operator(name): _choice(name, choice) for name, choice in (*overrides, *operators.items())}
        allowed = surrogate
        strong_zero = _switch("strong_zero", strong_zero)
        if isinstance(base, Convention):
            chosen = {**dict(base.overrides), **chosen}
            allowed = surrogate = surrogate or base.surrogate
            strong_zero = strong_zero or base.strong_zero
            base = base.base
        surrogate = surrogate or not {base, *chosen.values()}.isdisjoint(SURROGATES)
        # Frozen: equality and hash, of which caches and compiled graphs make use, come from the dataclass.
        object.__setattr__(self, "base", _rule_name(base))
        object.__setattr__(self, "overrides", tuple(sorted(chosen.items())))
        object.__setattr__(self, "surrogate", bool(surrogate))
        object.__setattr__(self, "strong_zero", strong_zero)
        for name, choice in self.overrides:
            self._refuse_early(name, choice, bool(allowed))

    def choice(self, kink: Kink) -> str | float:
        """What decides at a kink: the name of a convention, or a number."""
        return dict(self.overrides).get(kink.name, self.base)

    def element(self, spot: Spot) -> Element | None:
        """The element picked at a kink, or None where the installed torch decides."""
        choice = self.choice(spot.kink)
        if isinstance(choice, str):
            return RULES[choice](spot)
        assert not isinstance(spot.set, Joint), "refused when the convention was made"
        element = spot.set.with_weight(choice)
        if not self.surrogate and not self.is_judged_by_entry(spot) and element not in spot.set:
            raise ValueError(_outside(choice, spot))
        return element

    def is_judged_by_entry(self, spot: Spot) -> bool:
        """Whether the slopes of a call, tensors, decide entry by entry if a number lies in the set."""
        choice = self.choice(spot.kink)
        if self.surrogate or isinstance(choice, str) or not isinstance(spot.set, Slopes) or not spot.set.varies:
            return False
        return spot.set.with_weight(choice) not in spot.set  # for all slopes there could be

    def require_inside(self, spot: Spot, hit: Tensor) -> None:
        """Refuse such a number where it lies outside of the set at an entry on the kink."""
        choice = self.choice(spot.kink)
        assert isinstance(spot.set, Slopes)
        assert isinstance(choice, float)
        outside = spot.set.excludes(choice) & hit
        if bool(outside.any()):
            raise ValueError(_outside(choice, Spot(spot.kink, spot.set.of_entry(outside), spot.differentiated)))

    def is_straight_through(self, kinks: Iterable[Kink]) -> bool:
        """Whether the call that has these kinks hands its gradient to its first operand, wherever that lies."""
        return any(kink.family == "clamp" and self.choice(kink) == "straight-through" for kink in kinks)

    def _refuse_early(self, name: str, choice: str | float, is_allowed: bool) -> None:
        """Refuse a number that no call could accept; what depends on the call is refused when it is made."""
        if isinstance(choice, str):
            return
        sets = [kink.set for kink in KINKS[name] if not isinstance(kink.set, Jump)]
        joint = next((each for each in sets if isinstance(each, Joint)), None)
        if joint is not None:
            raise ValueError(
                f"{name}={choice}: the set is the {joint}, and no single number is an element of it. "
                f"Give the name of a convention: {', '.join(RULES)}."
            )
        known = [
            each
            for each in sets
            if not isinstance(each, Joint)
            if not isinstance(each, Slopes) or not names(each.left_slope) | names(each.right_slope)
        ]
        if is_allowed or len(known) < len(sets):
            return
        if not any(each.with_weight(choice) in each for each in known):
            raise ValueError(_outside(choice, Spot.of(KINKS[name][0], {}, ())))

    @cached_property  # and no field: Dynamo makes a dataclass anew from its fields
    def interferes(self) -> bool:
        """Whether anything at all is taken out of torch's hands."""
        return self.chooses or self.strong_zero

    @cached_property
    def chooses(self) -> bool:
        """Whether any element is."""
        return self.base != "torch" or bool(self.overrides)

    def __repr__(self) -> str:
        options = [f"{name}={choice!r}" for name, choice in self.overrides]
        options += ["surrogate=True"] * self.surrogate + ["strong_zero=True"] * self.strong_zero
        return f"Convention({', '.join([repr(self.base), *options])})"

    def __str__(self) -> str:
        is_a_name = not self.overrides and not self.strong_zero and self.surrogate == (self.base in SURROGATES)
        return self.base if is_a_name else repr(self)


def convention(like: str | Convention, *, strong_zero: bool = False) -> Convention:
    """A convention from its name, or one that is equal: always the same one, which is faster to recognise."""
    if isinstance(like, str) and like in _NAMED and not strong_zero:
        return _NAMED[like]
    made = like if isinstance(like, Convention) and not strong_zero else Convention(like, strong_zero=strong_zero)
    if torch.compiler.is_dynamo_compiling():  # which would have to hash what it has not made yet
        return made
    if len(_EQUAL) > 1024:
        _EQUAL.clear()
    return _EQUAL.setdefault(made, made)


def several(name: str, given: Iterable[str | Convention], least: int = 2) -> tuple[Convention, ...]:
    """The conventions that an argument of some name lists."""
    chosen = () if isinstance(given, str | Convention) else tuple(convention(each) for each in given)
    if isinstance(given, str | Convention) or 0 < len(chosen) < least:
        number = {1: "a list of conventions", 2: "two conventions or more"}[least]
        shown = str(given) if isinstance(given, str | Convention) else list(map(str, chosen))
        raise ValueError(f"{name}={shown!r}: give {number}, as in {name}=['torch-2.13', 'torch-2.14'].")
    return chosen


def _rule_name(name: object) -> str:
    if isinstance(name, str) and name in SAME_VERSIONS:
        return SAME_VERSIONS[name]
    if not isinstance(name, str) or name not in RULES:
        raise ValueError(unknown("convention", name, list(NAMES)))
    return name


def _operator(name: str) -> str:
    if name not in (*KINKS.names, *ALIASES):
        raise ValueError(unknown("operator", name, list(KINKS.names)))
    return ALIASES.get(name, name)


def _choice(name: str, choice: object) -> str | float:
    if isinstance(choice, bool) or not isinstance(choice, str | int | float):
        raise ValueError(f"{name}={choice!r}: give the name of a convention or a number, the element to take.")
    return _rule_name(choice) if isinstance(choice, str) else float(choice)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: give True or False.")
    return value


def _outside(choice: float, spot: Spot) -> str:
    return (
        f"{choice} is not a generalised derivative of {spot.kink.name} at {spot.kink.place}: "
        f"the set there is {spot.set}.\n"
        "Pick a value inside it, or pass surrogate=True if you want a slope that is not a subgradient."
    )


_NAMED = {name: Convention(SAME_VERSIONS.get(name, name)) for name in NAMES}
_EQUAL: dict[Convention, Convention] = {each: each for each in _NAMED.values()}
