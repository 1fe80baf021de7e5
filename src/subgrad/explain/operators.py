"""One operator: where its kinks are, the sets there, and what every version of torch and every convention returns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from subgrad.conventions import CHOICES
from subgrad.explain.upstream import Change, change_of
from subgrad.explain.words import WHAT
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.composites import THROUGH
from subgrad.kinks.expressions import names
from subgrad.kinks.kink import ALIASES, unknown, user_name
from subgrad.kinks.overloads import qualified
from subgrad.kinks.sets import Jump, Slopes
from subgrad.survey import Finding, Place, places
from subgrad.survey.finding import Measured

TELLING = 3  # distinct elements: one of torch's, and both sides or the middle
HOMES = ("torch.nn.functional.", "torch.linalg.", "torch.special.", "torch.", "F.", "aten::")


@dataclass(frozen=True)
class Pick:
    """An element, and the conventions that take it."""

    element: Measured | None
    conventions: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """Kinks of one overload at which conventions take the same elements.

    Attributes:
        places: where they are, in words of the operator's arguments.
        arguments: of the call that was measured, besides the tensors that the kink speaks of.
        differentiated: the arguments that require grad.
        picks: distinct elements; none at a jump or an infinite slope.
        constant: the arguments besides the first, where they are constant, and what is picked then by those conventions
            that pick something else.
    """

    overload: str
    places: tuple[str, ...]
    set: str
    arguments: Mapping[str, Any]
    differentiated: tuple[str, ...]
    picks: tuple[Pick, ...]
    constant: tuple[Pick, ...] = ()


@dataclass(frozen=True)
class Operator:
    """An operator of the table.

    Attributes:
        what: it is, in words.
        broken: where the installed torch breaks its documented rule.
        callers: functions without rows, whose kinks these are.
    """

    name: str
    what: str
    torch: str
    rows: tuple[Row, ...]
    jumps: tuple[Row, ...]
    broken: tuple[Finding, ...]
    change: Change | None
    callers: tuple[str, ...]


@dataclass(frozen=True)
class Composite:
    """A function without rows: its kinks are those of what it calls."""

    name: str
    calls: tuple[Operator, ...]


def is_operator(text: str) -> bool:
    """Whether a text is meant as the name of an operator, rather than as an expression."""
    name = text.strip().removeprefix("aten::")
    return all(part.isidentifier() for part in name.split("."))


def operator(text: str) -> Operator | Composite:
    """What the table knows of an operator, measured with the installed torch.

    >>> from subgrad.explain.operators import operator
    >>> found = operator("torch.relu")
    >>> found.what, [(pick.element["self"], pick.conventions[0]) for pick in found.rows[0].picks]
    ('max(x, 0)', [(0.0, 'min-norm'), (1.0, 'right'), (0.5, 'mean')])

    Raises:
        KeyError: for what has no row.
    """
    full = text.strip()
    bare = _bare(full)
    if bare in KINKS:
        return _operator(bare)
    calls = next((found for name, found in THROUGH.items() if full in _spellings(name)), None)
    if calls is not None:
        return _composite(full, calls)
    raise KeyError(unknown("operator", full, [*KINKS.names, *ALIASES, *THROUGH]))


def _bare(full: str) -> str:
    """The name in the table: ``linalg_vector_norm`` for ``torch.linalg.vector_norm``."""
    for home, prefix in (("torch.linalg.", "linalg_"), ("torch.special.", "special_")):
        if full.startswith(home) and prefix + full.removeprefix(home) in KINKS:
            return prefix + full.removeprefix(home)
    return next((full.removeprefix(home) for home in HOMES if full.startswith(home)), full)


def _spellings(name: str) -> tuple[str, str]:
    """``F.normalize`` and ``normalize``, without the arguments that are said besides."""
    plain = name.partition("(")[0]
    return plain, _bare(plain)


def _composite(name: str, calls: Iterable[str]) -> Composite:
    return Composite(name, tuple(_operator(each) for each in dict.fromkeys(user_name(op) for op in calls)))


def _operator(name: str) -> Operator:
    kinks = KINKS[name]
    found = [place for place in places({kink.op for kink in kinks}) if place.kink in kinks]
    by_kink = {kink: [place for place in found if place.kink is kink] for kink in kinks}
    rows = [_row(each) for kink, each in by_kink.items() if each and not isinstance(kink.set, Jump)]
    jumps = [_jump(kink) for kink in kinks if isinstance(kink.set, Jump)]
    findings = [place.finding("torch") for place in found if not isinstance(place.kink.set, Jump)]
    bare = kinks[0].name
    return Operator(
        name=bare,
        what=WHAT.get(bare, f"an operator of {kinks[0].op.partition('::')[0]}"),
        torch=str(torch.__version__),
        rows=_merged(rows),
        jumps=_merged(jumps),
        broken=tuple(each for each in findings if each.keeps_rule is False),
        change=change_of(bare),
        callers=tuple(caller for caller, called in THROUGH.items() if any(user_name(op) == bare for op in called)),
    )


def _row(found: Sequence[Place]) -> Row:
    """A kink at the first call where conventions differ, all arguments being differentiated or the first alone."""
    most = len(found[0].differentiated)
    choices = [(number, _picks(each)) for number, each in enumerate(found) if len(each.differentiated) == most]
    number, picks = next(
        (each for each in choices if len(each[1]) >= TELLING), max(choices, key=lambda each: len(each[1]))
    )
    place, following = found[number], found[number + 1 : number + 2]
    alone = next((each for each in following if len(each.differentiated) < most), None)
    return Row(
        overload=qualified(place.kink.op),
        places=(_where(place.kink),),
        set=_set(place),
        arguments=_numbers(place),
        differentiated=place.differentiated,
        picks=picks,
        constant=() if alone is None else _others(alone, picks),
    )


def _set(place: Place) -> str:
    kink = place.kink
    return str(kink.set.at(_values(place)) if kink.is_entrywise and not isinstance(kink.set, Jump) else kink.set)


def _values(place: Place) -> dict[str, Any]:
    return {name: each.item() if isinstance(each, torch.Tensor) else each for name, each in place.call.items()}


def _where(kink: Kink) -> str:
    """The place and the condition under which it exists, as far as the place does not say it."""
    condition = re.sub(r"\w+ is not None( and |$)", "", kink.when)
    condition = re.sub(r"\(\w+ is None or (.*?)\)", r"\1", condition)
    condition = re.sub(r"(\w+) is None", r"no \1", condition)
    return kink.words if condition in ("", "True") else f"{kink.words}, {condition}"


def _numbers(place: Place) -> dict[str, Any]:
    """The numbers on which the set depends, where it is that of a corner."""
    kink = place.kink
    if not isinstance(kink.set, Slopes):
        return {}
    used = names(kink.set.left_slope) | names(kink.set.right_slope)
    return {name: each for name, each in _values(place).items() if name in used}


def _picks(place: Place) -> tuple[Pick, ...]:
    return _grouped({convention: place.element(convention) for convention in CHOICES})


def _grouped(elements: Mapping[str, Measured | None]) -> tuple[Pick, ...]:
    groups: dict[str, Pick] = {}
    for convention, element in elements.items():
        text = repr(element)  # in which nan is equal to nan
        before = groups.get(text, Pick(element, ()))
        groups[text] = replace(before, conventions=(*before.conventions, convention))
    return tuple(groups.values())


def _others(alone: Place, picks: Sequence[Pick]) -> tuple[Pick, ...]:
    """What is picked for the first argument alone, by the conventions that pick another weight for it than together."""
    together = {convention: pick.element for pick in picks for convention in pick.conventions}
    (first,) = alone.differentiated
    elements = {}
    for convention in CHOICES:
        element, before = alone.element(convention), together[convention]
        if element is not None and before is not None and repr(element[first]) != repr(before[first]):
            elements[convention] = element
    return _grouped(elements)


def _jump(kink: Kink) -> Row:
    return Row(qualified(kink.op), (_where(kink),), str(kink.set), {}, (), ())


def _merged(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Places of one overload that differ in nothing else are one row."""
    groups: dict[str, Row] = {}
    for row in rows:
        text = repr(replace(row, places=()))
        before = groups.get(text)
        groups[text] = row if before is None else replace(before, places=(*before.places, *row.places))
    return tuple(groups.values())
