"""What frameworks return at kinks, in lines of 80 columns: grouped by operation, what disagrees first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from subgrad.report.elements import number, wrapped
from subgrad.report.survey_text import BAD, CHANGED, TITLE, Line, count
from subgrad.survey.frameworks import Answers, Case, Place, Returned, places

SHOWN = 6  # entries of a kink of many
STAR, FORWARD = "*", "(forward: "
CLOSE = 1e-5


@dataclass(frozen=True)
class Row:
    """A place, and the spellings by what they return there."""

    place: Place
    by_framework: dict[str, dict[str, list[str]]]
    failures: tuple[str, ...]

    @property
    def groups(self) -> dict[str, list[str]]:
        """The spellings with their frameworks."""
        return {
            text: [f"{framework} {', '.join(names)}" for framework, names in found.items()]
            for text, found in self.by_framework.items()
        }

    @property
    def disagrees(self) -> bool:
        """Two spellings, or the two modes of one."""
        return len(self.by_framework) > 1 or any(FORWARD in text for text in self.by_framework)

    @property
    def has_outside(self) -> bool:
        return any(text.endswith(STAR) for text in self.groups)


def frameworks(answers: Sequence[Answers], cases: Sequence[Case]) -> Iterator[Line]:
    """All frameworks that could be measured, and of the others why not."""
    measured = [each for each in answers if each.failed is None]
    rows = in_rows(measured, cases)
    differing = [row for row in rows if row.disagrees]
    same = [row for row in rows if not row.disagrees]
    yield from _section("They disagree", differing)
    yield from _section("One gives nothing at all", [row for row in same if row.failures])
    shown = {row.place.case["operator"] for row in rows if row.disagrees or row.failures}
    yield from _names("They agree", [row for row in same if row.place.case["operator"] not in shown])
    for each in measured:
        spellings = {(case["operator"], name) for case, found in zip(cases, each.cases, strict=True) for name in found}
        operations = {operator for operator, _ in spellings}
        counts = f"{count(len(spellings), 'spelling')} of {count(len(operations), 'operation')}"
        said = f"{each.framework} {each.version}: {counts}."
        yield from (Line(line) for line in wrapped(said))
    for each in answers:
        if each.failed is not None:
            yield from (Line(line, BAD) for line in wrapped(not_measured(each)))
    if len(measured) > 1:
        yield from (Line(line) for line in wrapped(_verdict(rows, measured)))


def not_measured(answers: Answers) -> str:
    return f"{answers.framework} was not measured: {answers.failed}"


def _verdict(rows: Sequence[Row], measured: Sequence[Answers]) -> str:
    differing = sum(row.disagrees for row in rows)
    outside = sum(row.has_outside for row in rows)
    said = f"They disagree at {differing} of {count(len(rows), 'place')}"
    starred = f"; at {outside} some return what is no element of the set, marked with a star" if outside else ""
    return f"{said}{starred}."


def in_rows(measured: Sequence[Answers], cases: Sequence[Case]) -> list[Row]:
    """Each place at which one of the frameworks was asked."""
    return _without_repetitions([row for row in _rows(measured, cases) if row.by_framework or row.failures])


def _rows(measured: Sequence[Answers], cases: Sequence[Case]) -> Iterator[Row]:
    for index, place in places(cases):
        spellings = [(each.framework, *given) for each in measured for given in each.cases[index].items()]
        groups: dict[str, dict[str, list[str]]] = {}
        for framework, spelling, returned in spellings:
            if returned.failed is None:
                name = f"{spelling} (no forward mode)" if isinstance(returned.forward, str) else spelling
                groups.setdefault(_returned(place, returned), {}).setdefault(framework, []).append(name)
        failed = [(framework, name, each.failed) for framework, name, each in spellings if each.failed is not None]
        yield Row(place, groups, tuple(f"{framework} {name}: {said}" for framework, name, said in failed))


def _returned(place: Place, returned: Returned) -> str:
    """The element in reverse mode, and in forward mode where that is another; a star for what is none."""
    reverse, forward = _element(place, returned.reverse), _element(place, returned.forward)
    text = f"{reverse}" if forward in (None, reverse) else f"{reverse} {FORWARD}{forward})"
    return f"{text} {STAR}" if _is_outside(place, returned) else text


def _element(place: Place, gradients: object) -> str | None:
    found = place.element(gradients)  # type: ignore[arg-type]
    if not isinstance(found, tuple):
        return None
    shown = ", ".join(number(_rounded(each)) for each in found[:SHOWN])
    return f"{shown}, ..." if len(found) > SHOWN else shown


def _rounded(weight: float) -> float:
    """What single precision has rounded, as the number that is meant; and no zero with a sign."""
    if not math.isfinite(weight):
        return weight
    meant = round(weight * 24) / 24
    return (meant if abs(meant - weight) < 1e-6 else weight) + 0.0


def _is_outside(place: Place, returned: Returned) -> bool:
    """Whether it is known to be no element: nan where there is a set, or a number that no element has."""
    found = place.element(returned.reverse)
    if not isinstance(found, tuple) or place.set.startswith("none"):
        return False
    if any(math.isnan(each) for each in found):
        return True
    between = next(kink["between"] for kink in place.case["kinks"] if kink["place"] == place.place)
    return between is not None and not all(between[0] - CLOSE <= each <= between[1] + CLOSE for each in found)


def _without_repetitions(rows: Sequence[Row]) -> list[Row]:
    """Overloads of one operation at which the same is returned are shown once."""
    kept: dict[str, Row] = {}
    for row in rows:
        place = row.place
        numbers = place.numbers if place.entry is None else {}  # of single entries the groups say all
        given = {name: each for name, each in numbers.items() if name != "dim"}
        kept.setdefault(repr((place.case["operator"], place.place, place.set, given, row.groups)), row)
    return list(kept.values())


def _section(title: str, rows: Sequence[Row]) -> Iterator[Line]:
    if not rows:
        return
    operators = dict.fromkeys(row.place.case["operator"] for row in rows)
    yield Line(f"{title} ({count(len(rows), 'place')}, {count(len(operators), 'operation')})", TITLE)
    for operator in operators:
        yield Line(operator)
        for row in rows:
            if row.place.case["operator"] == operator:
                yield from _row(row)
    yield Line("")


def _row(row: Row) -> Iterator[Line]:
    given = ", ".join(f"{name}={value}" for name, value in row.place.numbers.items())
    where = " ".join(filter(None, (row.place.place, f"for {given}" if given else "")))
    yield from (Line(line) for line in wrapped(f"{where}: {row.place.set}", "  "))
    for text, names in row.groups.items():
        look = BAD if text.endswith(STAR) else CHANGED
        start, said = f"    {text}  ", "; ".join(names)
        lines = wrapped(said, start) if len(start) < 30 else [start.rstrip(), *wrapped(said, "      ")]
        yield from (Line(line, look) for line in lines)
    for failure in row.failures:
        yield from (Line(line, BAD) for line in wrapped(f"fails: {failure}", "    "))


def _names(title: str, rows: Sequence[Row]) -> Iterator[Line]:
    if rows:
        names = ", ".join(dict.fromkeys(row.place.case["operator"] for row in rows))
        yield Line(f"{title} ({count(len(rows), 'place')})", TITLE)
        yield from (Line(line) for line in wrapped(names, "  "))
        yield Line("")
