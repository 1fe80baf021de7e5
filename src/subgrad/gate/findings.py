"""What an audit found, line by line: one finding for each line on which gradients depend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from subgrad.audit.call_site import Site
from subgrad.audit.effects import Cause, Effect, changes

DEPENDS = "gradient-depends-on-convention"
NOT_FINITE = "gradient-not-finite"
# By name: what each is about, in a sentence.
RULES = {
    DEPENDS: "Gradients depend on which generalised derivative an operator returns at its kink.",
    NOT_FINITE: "A gradient is infinite or not a number.",
}


@dataclass(frozen=True)
class Finding:
    """A line that a gate looks at.

    Attributes:
        rule: one of `RULES`.
        site: the line.
        operator: that the line calls, as users name it.
        backward: the line that called backward.
        message: what happens there, in a sentence.
        before, after: the conventions under which gradients differ.
        relative: by how much at most, as a norm over that of the gradients; None where that is 0 or not finite.
        is_known: a baseline holds it.
        fails: it is new, and gradients change by more than they may.
    """

    rule: str
    site: Site
    operator: str
    backward: Site
    message: str
    before: str = ""
    after: str = ""
    relative: float | None = None
    is_known: bool = False
    fails: bool = True


Line = tuple[Site, str, str, str]  # a line and its operator, and a pair of conventions


def dependences(effects: Iterable[Effect], known: Iterable[Line] = (), tolerance: float = 0.0) -> list[Finding]:
    """The lines because of which gradients differ, each once, as its largest effect shows it.

    A line fails if it is not known, and in one backward what the new lines change together is more than the tolerance.
    """
    settled = set(known)
    found: dict[Line, Finding] = {}
    for effect in effects:
        exceeds = _number(_size_of_new(effect, settled)) > tolerance
        for line, cause in _lines(effect):
            is_known = line in settled
            one = _finding(effect, cause, is_known, exceeds and not is_known)
            found[line] = _larger(found[line], one) if line in found else one
    return list(found.values())


def _lines(effect: Effect) -> Iterator[tuple[Line, Cause]]:
    """The lines responsible; that of backward itself, where which they are cannot be told."""
    causes = effect.causes
    if effect.differing and not causes:
        parameters = sum(change.differ > 0 for change in effect.changes)
        causes = (Cause(effect.site, "backward", parameters, effect.differing, effect.flips, True, effect.relative),)
    for cause in causes:
        yield (cause.site, cause.operator, effect.before, effect.after), cause


def _size_of_new(effect: Effect, known: set[Line]) -> float | None:
    """What the lines that are not known change: at most all that changes, and the sum of what they do one by one."""
    if not effect.differing:
        return 0.0
    new = [cause for line, cause in _lines(effect) if line not in known]
    together = sum(_number(cause.relative) for cause in new)
    return effect.relative if together >= _number(effect.relative) else together


def _number(relative: float | None) -> float:
    return inf if relative is None else relative


def _finding(effect: Effect, cause: Cause, is_known: bool, fails: bool) -> Finding:
    going = f"going from {effect.before} to {effect.after}"
    turned = "entry changes" if cause.flips == 1 else "entries change"
    signs = f", {cause.flips:,} {turned} sign" if cause.flips else ""
    uncertain = "" if effect.repeats else " Backward is not deterministic here: some of that may be its own."
    changed = changes(cause.parameters, len(effect.changes), cause.relative)
    message = f"`{cause.operator}`: {going} {changed}{signs}.{uncertain}"
    return Finding(
        DEPENDS,
        cause.site,
        cause.operator,
        effect.site,
        message,
        effect.before,
        effect.after,
        cause.relative,
        is_known,
        fails,
    )


def _larger(one: Finding, other: Finding) -> Finding:
    larger = other if _number(other.relative) > _number(one.relative) else one
    return replace(larger, fails=one.fails or other.fails)


def line_of(finding: Finding) -> Line:
    return finding.site, finding.operator, finding.before, finding.after
