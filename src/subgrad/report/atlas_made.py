"""Make the atlas: measure the installed torch at every place of the table, and join what frameworks returned there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from subgrad.explain.words import WHAT
from subgrad.kinks import KINKS
from subgrad.kinks.sets import Jump, Pole
from subgrad.report.atlas_cases import (
    Asked,
    answer_at,
    as_place,
    flat,
    has_same_numbers,
    is_same,
    noted,
    read_answer,
    returned_by,
    source_name,
    sources,
)
from subgrad.report.atlas_curve import composed, drawn
from subgrad.report.atlas_data import (
    COMPOSED,
    ENTRYWISE,
    GROUPS,
    JOINT,
    JUMPS,
    POLES,
    VERSIONS,
    Answer,
    Atlas,
    Operation,
    Spot,
    is_simplex,
    shown,
)
from subgrad.report.atlas_point import Point, entry_label
from subgrad.survey import Place, places
from subgrad.survey import frameworks as others
from subgrad.survey.finding import Finding
from subgrad.survey.frameworks import Answers

INSTALLED = torch.__version__.partition("+")[0]


def atlas(
    answers: Sequence[Answers] = (), operators: Sequence[str] = (), watch: Callable[..., Iterable[Any]] = iter
) -> Atlas:
    """Measure the installed torch at every place of the table, and join what the frameworks returned there.

    Args:
        answers: of the frameworks, for the cases of `operators`.
        operators: these alone, by name or overload.
        watch: goes through the places, and may say how far it is.
    """
    given = [each for each in answers if each.failed is None]
    found: dict[str, list[tuple[str, Spot]]] = {}
    for name, group, spot in _spots(given, operators, watch):
        found.setdefault(name, []).append((group, spot))
    operations = [
        Operation(name, WHAT.get(name, ""), each[0][0], _without_repetitions(spot for _, spot in each))
        for name, each in found.items()
    ]
    operations.sort(key=lambda operation: GROUPS.index(operation.group))
    # An installer says much, and last what it comes to.
    failed = {each.framework: each.failed.strip().splitlines()[-1] for each in answers if each.failed}
    return Atlas(tuple(operations), INSTALLED, _all_sources(given), failed)


def _all_sources(given: Sequence[Answers]) -> dict[str, str]:
    """Versions of torch by their numbers, then the frameworks as they were asked."""
    asked = {name: str(each.version) for each, name in zip(given, sources(given), strict=True)}
    torches = {**dict.fromkeys(VERSIONS, ""), source_name("torch", INSTALLED): INSTALLED}
    torches.update({name: version for name, version in asked.items() if name.startswith("torch ")})
    rest = {name: version for name, version in asked.items() if name not in torches}
    return {**{name: torches[name] for name in sorted(torches, key=_number)}, **rest}


def _number(source: str) -> list[int]:
    return [int(part) for part in source.removeprefix("torch ").split(".") if part.isdecimal()]


def _spots(
    given: Sequence[Answers], operators: Sequence[str], watch: Callable[..., Iterable]
) -> Iterator[tuple[str, str, Spot]]:
    cases = others.chosen(operators)
    waiting = dict(enumerate(others.places(cases)))
    table = [each for each in places() if not operators or {each.kink.op, each.kink.name} & set(operators)]
    for place in watch(table):
        described = place.description
        same = [number for number, (_, other) in waiting.items() if is_same(place, described, other)]
        same.sort(key=lambda number: not has_same_numbers(place, waiting[number][1]))
        index, other = waiting.pop(same[0]) if same else (0, None)
        asked = returned_by(given, index) if other else []
        yield place.kink.name, _group(place), _spot(place, other if asked else None, asked)
    for index, other in waiting.values():
        asked = returned_by(given, index)
        if asked:
            known = as_place(other)
            spot = _alone(other, asked) if known is None else _spot(known, other, asked)
            yield other.case["operator"], COMPOSED if known is None else _group(known), spot


def _group(place: Place) -> str:
    found = place.kink.set
    if isinstance(found, Jump):
        return POLES if isinstance(found, Pole) else JUMPS
    return ENTRYWISE if place.kink.op in KINKS.entrywise else JOINT


# Places.


def _spot(place: Place, other: others.Place | None, returned: Sequence[Asked]) -> Spot:
    cotangent = () if other is None or other.entry is not None else flat(other.case["cotangent"])
    point = Point(place, cotangent if len(cotangent) > 1 else ())
    finding, stake = point.finding, point.entries
    reverse = point.weights(point.element("torch"))
    answers = [] if isinstance(place.kink.set, Pole) else _versions(point)
    asked = [] if other is None else [answer_at(point, other, each) for each in returned]
    source = source_name("torch", INSTALLED)
    if not any(each.source == source and each.key == Answer("", "", "", reverse).key for each in asked):
        forward = None if point.cotangent else point.weights(finding.forward)
        answers.append(noted(Answer("torch", source, _call(finding), reverse, forward)))
    answers += asked
    main = _main(answers, len(stake))
    slopes = point.slopes(stake[main])
    return Spot(
        where=finding.place,
        call=_call(finding),
        names=tuple(each.label for each in stake),
        set=finding.set,
        answers=tuple(answers),
        curve=drawn(point, stake[main], slopes),
        reach=_reach(point, slopes),
        least=point.weights(point.least),
        main=main,
        breaks=finding.keeps_rule is False,
        held=tuple(sorted({*place.kink.set.candidates} - {*place.differentiated})) if point.is_entrywise else (),
        cotangent=point.cotangent,
    )


def _reach(point: Point, slopes: tuple[float, float] | None) -> tuple[float, float] | None:
    """From the least weight of the set to the largest: the slopes to both sides, of a simplex all shares."""
    if slopes is None:
        return None
    shares = (0.0, 1.0) if is_simplex(point.finding.set) and not point.cotangent else ()
    return shown(min(*slopes, *shares)), shown(max(*slopes, *shares))


def _call(finding: Finding) -> str:
    """The operator with the arguments that are given."""
    _, _, form = finding.overload.partition(".")
    given = ", ".join(
        f"{name}={each}"
        for name, each in finding.arguments.items()
        if each is not None and each != [] and each is not False
    )
    name = f"{finding.operator}.{form}" if form else finding.operator
    return f"{name}({given})" if given else name


def _versions(point: Point) -> list[Answer]:
    return [Answer("torch", source, "", point.weights(point.element(like))) for source, like in VERSIONS.items()]


def _main(answers: Sequence[Answer], entries: int) -> int:
    """The first entry about which the answers differ."""
    for number in range(entries):
        if len({repr(shown(each.weights[number])) for each in answers if each.weights}) > 1:
            return number
    return 0


def _alone(other: others.Place, returned: Sequence[Asked]) -> Spot:
    """What is no operator of the table: frameworks alone were asked."""
    case = other.case
    answers = [read_answer(other, asked, other.element) for asked in returned]
    shapes = {name: torch.tensor(case["arguments"][name]).shape for name in case["differentiated"]}
    every = [entry_label(name, index, shape) for name, shape in shapes.items() for index in range(shape.numel())]
    names = tuple(every if other.entry is None else shapes)
    between = next(kink["between"] for kink in case["kinks"] if kink["place"] == other.place)
    return Spot(
        where=other.place,
        call=case["operator"],
        names=names,
        set=other.set.removeprefix("the "),
        answers=tuple(answers),
        curve=composed(case["operator"]),
        reach=tuple(between) if between else None,
        main=_main(answers, len(names)),
    )


def _without_repetitions(found: Iterable[Spot]) -> tuple[Spot, ...]:
    """Calls at whose kinks the same is returned are shown once, those first of which most is known."""
    kept: dict[str, Spot] = {}
    for spot in found:
        answers = sorted({(each.source, each.key, repr(each.forward)) for each in spot.answers})
        key = repr((spot.where, spot.set, spot.names, spot.held, answers))
        if key not in kept:
            kept[key] = spot
        elif spot.call not in (kept[key].call, *kept[key].also):
            kept[key] = replace(kept[key], also=(*kept[key].also, spot.call))
    return tuple(sorted(kept.values(), key=lambda spot: -len({each.source for each in spot.answers})))
