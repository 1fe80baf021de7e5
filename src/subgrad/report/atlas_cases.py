"""Cases of the frameworks for the atlas: which place of the table each is, and what was returned at it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from subgrad.kinks import KINKS
from subgrad.report.atlas_data import Answer, Weights
from subgrad.report.atlas_point import Point
from subgrad.survey import Place
from subgrad.survey import frameworks as others
from subgrad.survey.finding import Description
from subgrad.survey.frameworks import Answers, Returned

CLOSE = 1e-3  # of values: single precision, and frameworks that approximate


class Asked(NamedTuple):
    """What one spelling returned, and who was asked."""

    framework: str
    source: str
    spelling: str
    returned: Returned


def returned_by(given: Sequence[Answers], index: int) -> list[Asked]:
    return [
        Asked(each.framework, source, spelling, returned)
        for each, source in zip(given, sources(given), strict=True)
        for spelling, returned in each.cases[index].items()
    ]


def sources(given: Sequence[Answers]) -> list[str]:
    """A name for each: shorter than its version, but for those of which several were asked."""
    short = [source_name(each.framework, each.version) for each in given]
    return [
        name if short.count(name) == 1 else f"{each.framework} {each.version}"
        for name, each in zip(short, given, strict=True)
    ]


def source_name(framework: str, version: str | None) -> str:
    """Versions of torch are told apart; of the others mostly one is asked."""
    return framework if framework != "torch" else f"torch {'.'.join(str(version).split('.')[:2])}"


# Places of the table, and the same among the cases.


def is_same(place: Place, description: Description, other: others.Place) -> bool:
    """Whether a case of the frameworks meets a place of the table, which is described."""
    case = other.case
    if case["overload"] is None:  # sqrt, sign: what has no set
        said = (case["operator"], other.place) == (description.operator, description.place)
        return said and description.set.startswith("none") and description.set.startswith(other.set.rstrip(")"))
    if (case["overload"], other.place) != (description.overload, description.place):
        return False
    if other.entry is not None:
        among = place.kink.set.candidates or ("self",)  # the frameworks differentiate them all, and maybe more
        same = description.differentiated == among and set(among) <= set(case["differentiated"])
        return same and other.set.removeprefix("the ") == description.set
    return tuple(case["differentiated"]) == description.differentiated and all(
        _plain(place.call.get(name)) == each for name, each in case["arguments"].items()
    )


def has_same_numbers(place: Place, other: others.Place) -> bool:
    case = other.case
    given = {name: each for name, each in case["arguments"].items() if name not in case["tensors"]}
    return all(_plain(place.call.get(name)) == each for name, each in given.items())


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def as_place(other: others.Place) -> Place | None:
    """A case as a place of the survey; None for what is no operator of the table."""
    case = other.case
    named = [
        kink for kink in KINKS if f"aten::{kink.op}" == case["overload"] and other.place in (kink.place, kink.words)
    ]
    if not named:
        return None
    call = {name: _argument(each, name in case["tensors"]) for name, each in case["arguments"].items()}
    if other.entry is not None:
        call = {name: _at(each, other.entry) for name, each in call.items()}
    return Place(named[0], call, named[0].set.candidates or ("self",))


def _argument(given: Any, is_tensor: bool) -> Any:
    if not is_tensor or given is None:
        return given
    made = torch.tensor(given)
    return made.double() if made.is_floating_point() else made


def _at(given: Any, entry: int) -> Any:
    return given.flatten()[entry].clone() if isinstance(given, torch.Tensor) and given.dim() else given


# Answers.


def answer_at(point: Point, other: others.Place, asked: Asked) -> Answer:
    return read_answer(other, asked, lambda gradients: _chosen(point, other, gradients))


def _chosen(point: Point, other: others.Place, gradients: Any) -> Weights | str | None:
    """Of what was returned, the weights of the entries at stake."""
    found = other.element(gradients)
    if not isinstance(found, tuple):
        return found
    names = other.case["differentiated"]
    sizes = {name: 1 if other.entry is not None else len(flat(other.case["arguments"][name])) for name in names}
    starts, start = {}, 0
    for name, size in sizes.items():
        starts[name], start = start, start + size
    places = [0 if other.entry is not None or each.index is None else each.index for each in point.entries]
    return tuple(found[starts[each.name] + place] for each, place in zip(point.entries, places, strict=True))


def read_answer(other: others.Place, asked: Asked, chosen: Callable[[Any], Weights | str | None]) -> Answer:
    framework, source, spelling, returned = asked
    failed = returned.failed or (None if _is_same_function(other, returned) else "another function: its values differ")
    if failed is not None:
        return Answer(framework, source, spelling, None, failed=failed)
    weights = chosen(returned.reverse)
    assert not isinstance(weights, str)
    return noted(Answer(framework, source, spelling, weights, chosen(returned.forward)))


def _is_same_function(other: others.Place, returned: Returned) -> bool:
    """Whether the values are those of torch, where they are finite and the other arguments are those of the place."""
    case, entry = other.case, other.entry
    want, got = flat(case["value"]), flat(returned.value)
    given = {name: flat(case["arguments"][name]) for name in case["tensors"] if case["arguments"][name] is not None}
    first, *rest = given.values() if entry is not None else ((),)

    def counts(number: int) -> bool:
        if entry is not None and not math.isfinite(first[number]):
            return False
        alike = entry is None or all(len(each) == 1 or each[number] == each[entry] for each in rest)
        return alike and math.isfinite(want[number])

    return all(abs(got[each] - want[each]) < CLOSE * (1 + abs(want[each])) for each in range(len(want)) if counts(each))


def noted(answer: Answer) -> Answer:
    """Forward mode only where it returns something else."""
    forward = answer.forward
    is_same = isinstance(forward, tuple) and answer.key == replace(answer, weights=forward).key
    return replace(answer, forward=None) if is_same else answer


def flat(given: Any) -> Weights:
    return tuple(number for each in given for number in flat(each)) if isinstance(given, list) else (float(given),)
