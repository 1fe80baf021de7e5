"""What real versions of torch return, in lines of 80 columns: the places at which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from subgrad.report.elements import both_modes, wrapped
from subgrad.report.survey_text import CHANGED, TITLE, Line, count, place
from subgrad.survey.finding import Finding
from subgrad.survey.versions import Measurement

MISSING = "not here"


def versions(measured: Sequence[Measurement]) -> Iterator[Line]:
    """All versions that could be measured, and of the others why not."""
    found = [each for each in measured if each.failed is None]
    by_place = _by_place(found)
    differing = [findings for findings in by_place if len(set(_returned(findings))) > 1]
    operators = dict.fromkeys(_first(findings).operator for findings in differing)
    for operator in operators:
        yield Line(operator, TITLE)
        for findings in differing:
            if _first(findings).operator == operator:
                yield from _place(findings, found)
    if differing:
        yield Line("")
    for each in found:
        yield from (Line(line) for line in wrapped(_summary(each)))
    names = ", ".join(each.version for each in found)
    same = len(by_place) - len(differing)
    if len(found) > 1:
        said = f"The same under {names} at {same} of {len(by_place)} places, in both modes."
        yield from (Line(line) for line in wrapped(said))


def failures(measured: Sequence[Measurement]) -> list[str]:
    return [f"torch {each.version} was not measured: {each.failed}" for each in measured if each.failed is not None]


Findings = tuple[Finding | None, ...]


def _by_place(measured: Sequence[Measurement]) -> list[Findings]:
    """The findings of each place under every version; samples of one description are told apart by their order."""
    tables: list[dict[tuple[str, int], Finding]] = []
    for each in measured:
        seen: Counter[str] = Counter()
        table = {}
        for finding in each.findings:
            seen[finding.key] += 1
            table[finding.key, seen[finding.key]] = finding
        tables.append(table)
    places = dict.fromkeys(place for table in tables for place in table)
    return [tuple(table.get(place) for table in tables) for place in places]


def _first(findings: Findings) -> Finding:
    return next(each for each in findings if each is not None)


def _returned(findings: Findings) -> list[str]:
    return [MISSING if each is None else both_modes(each.reverse, each.forward) for each in findings]


def _place(findings: Findings, measured: Sequence[Measurement]) -> Iterator[Line]:
    """Versions with the same result together, in their order."""
    yield from (Line(line) for line in place(_first(findings)))
    groups: dict[str, list[str]] = {}
    for each, returned in zip(measured, _returned(findings), strict=True):
        groups.setdefault(returned, []).append(each.version)
    for returned, names in groups.items():
        yield from (Line(line, CHANGED) for line in wrapped(returned, f"    {', '.join(names)}  "))


def _summary(measured: Measurement) -> str:
    kept = Counter(finding.keeps_rule for finding in measured.findings)
    places = count(len(measured.findings), "place")
    return (
        f"torch {measured.version}: {places}, its documented rule is kept at {kept[True]} and broken at {kept[False]}."
    )
