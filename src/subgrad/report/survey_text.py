"""Findings of the survey in lines of 80 columns, grouped by operator, what deserves attention first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from subgrad.kinks import KINKS
from subgrad.report.elements import WIDTH, both_modes, element, wrapped
from subgrad.survey import Change, Finding
from subgrad.survey.finding import Description

PLAIN, TITLE, BAD, GOOD, CHANGED = "", "bold", "red", "green", "bold"


class Line(NamedTuple):
    """A line, and its look where there is one."""

    text: str
    look: str = PLAIN


def overview(findings: Sequence[Finding]) -> Iterator[Line]:
    """Everything: places that break the rule or that the convention changes one by one, all others by their names."""
    like = findings[0].convention if findings else ""
    of_rule = [each for each in findings if each.documented is not None]
    broken = [each for each in of_rule if not each.keeps_rule]
    changed = [each for each in of_rule if each.keeps_rule and is_changed(each)]
    rest = [each for each in of_rule if each.keeps_rule and not is_changed(each)]
    nowhere = [each for each in findings if each.documented is None]
    poles = [each for each in nowhere if each.set.startswith("none (infinite slope")]
    others = [each for each in nowhere if each not in poles]
    yield from _section("Breaks its documented rule", broken)
    yield from _upgrade(findings)
    yield from _section(f"Keeps its rule, and {like} takes something else", changed)
    yield from _names(f"Keeps its rule, and {like} changes nothing", rest)
    yield from _names("Jumps, or has no derivative here: there is no rule", others)
    yield from _names("Infinite slopes: there is no rule", poles)


def details(findings: Sequence[Finding]) -> Iterator[Line]:
    """Every place, by operator."""
    yield from _grouped(findings, _finding)


def summary(findings: Sequence[Finding]) -> str:
    """The count of places where torch keeps its documented rule and where not."""
    kept = sum(finding.keeps_rule is True for finding in findings)
    broken = sum(finding.keeps_rule is False for finding in findings)
    jumps = sum(finding.keeps_rule is None for finding in findings)
    changed = sum(map(is_changed, findings))
    like = findings[0].convention if findings else "the convention"
    version = torch.__version__.partition("+")[0]
    return (
        f"{count(len(findings), 'place')}: torch {version} keeps its documented rule at {kept} "
        f"and breaks it at {broken}; {jumps} are jumps or infinite slopes, where there is no rule. "
        f"{like} changes what torch returns at {changed}."
    )


def is_changed(finding: Finding) -> bool:
    """Whether the convention returns something else than torch, in either mode."""
    mine, torchs = (finding.chosen, finding.chosen_forward), (finding.reverse, finding.forward)
    return list(map(element, mine)) != list(map(element, torchs))


# Sections.


def _section(title: str, findings: Sequence[Finding]) -> Iterator[Line]:
    if findings:
        yield from _title(title, findings)
        yield from _grouped(findings, _finding)
        yield Line("")


def _names(title: str, findings: Sequence[Finding]) -> Iterator[Line]:
    if findings:
        yield from _title(title, findings)
        names = ", ".join(dict.fromkeys(each.operator for each in findings))
        yield from (Line(line) for line in wrapped(names, "  "))
        yield Line("")


def _title(title: str, findings: Sequence[Finding]) -> Iterator[Line]:
    operators = len({each.operator for each in findings})
    yield Line(f"{title} ({count(len(findings), 'place')}, {count(operators, 'operator')})", TITLE)


def _upgrade(findings: Sequence[Finding]) -> Iterator[Line]:
    """The operators at whose kinks torch 2.14 changed something."""
    named = {each.operator for each in findings}
    changed = dict.fromkeys(kink.name for kink in KINKS if isinstance(kink.torch, dict) and kink.name in named)
    if changed:
        yield Line("Changed by torch 2.14", TITLE)
        yield from (Line(line) for line in wrapped(", ".join(changed), "  "))
        yield Line("  subgrad survey --diff torch-2.13 torch-2.14 says what, subgrad explain why")
        yield Line("")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# Places.


def _grouped(found: Sequence[Description], shown: Callable[..., Iterable[Line]]) -> Iterator[Line]:
    operators = dict.fromkeys(each.operator for each in found)
    for operator in operators:
        yield Line(operator)
        for each in found:
            if each.operator == operator:
                yield from shown(each)


def place(found: Description) -> list[str]:
    """The form that is called, where it is, with which numbers, and what is differentiated."""
    _, _, form = found.overload.partition(".")
    given = ", ".join(f"{name}={value}" for name, value in found.arguments.items())
    parts = [found.place, f"for {given}" if given else "", f"in {', '.join(found.differentiated)}"]
    return wrapped(" ".join(filter(None, parts)), f"  .{form} " if form else "  ")


def _finding(finding: Finding) -> Iterator[Line]:
    yield from (Line(line) for line in place(finding))
    returned = both_modes(finding.reverse, finding.forward)
    if finding.documented is None:
        rule, look = "no rule", PLAIN
    elif finding.keeps_rule:
        rule, look = "as its rule asks", GOOD
    else:
        rule, look = f"its rule asks {element(finding.documented)}", BAD
    said = f"torch {returned}, {rule}"
    if is_changed(finding):
        chosen = both_modes(finding.chosen, finding.chosen_forward)
        is_asked = finding.documented is not None and chosen == element(finding.documented)
        said += f", as {finding.convention} takes" if is_asked else f"; {finding.convention} {chosen}"
        look = look if look == BAD else CHANGED
    yield from (Line(line, look) for line in _of_set(finding.set, said))


def _of_set(found: str, said: str) -> list[str]:
    line = f"    {found}: {said}"
    return [line] if len(line) <= WIDTH else [*wrapped(f"{found}:", "    "), *wrapped(said, "      ")]


# Two conventions.


def differences(found: Sequence[Change], before: str, after: str, looked_at: int) -> Iterator[Line]:
    """Where two conventions take different elements."""

    def shown(change: Change) -> Iterator[Line]:
        yield from (Line(line) for line in place(change))
        said = f"{before} {element(change.before)} -> {after} {element(change.after)}"
        yield from (Line(line, CHANGED) for line in _of_set(change.set, said))

    yield from _grouped(found, shown)
    if not found:
        places = count(looked_at, "place")
        yield from (Line(line) for line in wrapped(f"{before} and {after} take the same elements at all of {places}."))
        return
    yield Line("")
    operators = len({change.operator for change in found})
    counts = f"{count(len(found), 'place')} of {looked_at}, of {count(operators, 'operator')}"
    yield from (Line(line) for line in wrapped(f"{before} and {after} differ at {counts}."))
