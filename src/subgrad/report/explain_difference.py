"""Two expressions at a point, in lines of 80 columns: under which conventions they differ, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from subgrad.explain.difference import NEARBY, SIDES, Cause, Difference, Reason
from subgrad.explain.numbers import named
from subgrad.explain.program import TRIES, Gradient, Hit
from subgrad.report import explain_text
from subgrad.report.elements import columns, number, wrapped

GAPS = 4  # entries in which two gradients differ
CAUSES, UNMOVED = 8, 2


def text(found: Difference) -> str:
    """Whether and why they differ."""
    lines = [*explain_text.head(list(zip(SIDES, found.texts, strict=True)), found.at, found.dtype)]
    lines += _values(found)
    lines += [
        "",
        *explain_text.hits([(side, hit) for side, hits in zip(SIDES, found.hits, strict=True) for hit in hits]),
    ]
    for reason in found.reasons:
        lines += ["", *_reason(reason, found)]
    if found.agree:
        names = explain_text.conventions(found.agree, found.torch)
        lines += ["", *wrapped(f"The same gradient under {names}.")]
    lines += ["", *_both_own(found)]
    return "\n".join(lines)


def _values(found: Difference) -> Iterator[str]:
    one, other = (explain_text.value(*each) for each in zip(found.values, found.entries, strict=True))
    is_same = found.values[0] == found.values[1]
    yield from wrapped(f"{one}, the same" if is_same else f"{one} and {other}", "value   ")

    if found.nearby == NEARBY:
        yield from wrapped(f"The same at {NEARBY} points nearby, too.", "        ")
    else:
        yield from wrapped(
            f"Not the same function: other values at {NEARBY - found.nearby} of {NEARBY} points nearby.", "        "
        )


def _reason(reason: Reason, found: Difference) -> Iterator[str]:
    yield from wrapped(f"under {explain_text.conventions(reason.conventions, found.torch)}")
    rows = [("", "A", "B", "A - B")]
    for gap in reason.gaps[:GAPS]:
        one, other, rest = (number(each) for each in (gap.first, gap.second, gap.first - gap.second))
        rows.append((named(gap.name, gap.index), one, other, rest))
    yield from (f"  {line}" for line in columns(rows, (1, 2, 3)))
    if len(reason.gaps) > GAPS:
        yield f"  and {len(reason.gaps) - GAPS} more entries"
    yield from _why(reason, found)


def _why(reason: Reason, found: Difference) -> Iterator[str]:
    if reason.reference is None:
        yield from wrapped(
            "Why: no convention gives both the same gradient, so that it is not one operator's element alone.", "  "
        )
        return
    to = explain_text.conventions(reason.conventions[:1], found.torch)
    yield from wrapped(f"Why: under {reason.reference} they agree. From there to {to},", "  ")
    for cause in reason.causes[:CAUSES]:
        yield from wrapped(_cause(cause, reason), "    ")
    for said in _unmoved(reason, found)[:UNMOVED]:
        yield from wrapped(said, "    ")
    if len(reason.causes) > CAUSES:
        yield f"    and {len(reason.causes) - CAUSES} more entries"
    together = "in turn" if reason.in_turn else "together"
    if reason.is_complete:
        yield from wrapped(f"and nothing else: {together} that is the whole difference.", "  ")
    else:
        yield from wrapped("which is not the whole difference: these entries act through each other.", "  ")


def _cause(cause: Cause, reason: Reason) -> str:
    hit = cause.hit
    entry = hit.entries[0] if hit.entries else None
    place = f"entry {explain_text.index(entry.index)} of {hit.source}" if entry and entry.index else hit.source
    given = f" (where {_given(entry.given)})" if entry and entry.given else ""
    taken = _taken(hit, reason)
    times = "" if cause.cotangent is None else f", times the cotangent {number(cause.cotangent)}"
    moves = ", ".join(f"{named(name, index)} by {move:+.5g}" for name, index, move in cause.effects[:GAPS])
    more = f" and {len(cause.effects) - GAPS} more" if len(cause.effects) > GAPS else ""
    return f"{cause.side}: {place} lies on {hit.place}{given} and takes {taken}{times}: {moves}{more}."


def _unmoved(reason: Reason, found: Difference) -> list[str]:
    """What the other expression takes at its kinks, where that is the same under both conventions."""
    moved = {cause.side for cause in reason.causes}
    said = []
    for side, hits in zip(SIDES, found.hits, strict=True):
        for hit in hits if side not in moved else ():
            picks = [hit.picks.get(name) for name in (reason.conventions[0], reason.reference or "")]
            if picks[0] is not None and picks[0] == picks[1]:
                index = hit.entries[0].index if hit.entries else ()
                place = f"entry {explain_text.index(index)} of {hit.source}" if index else hit.source
                said.append(f"{side}: {place} lies on {hit.place} and takes {_weights(picks[0])} under both.")
    return said


def _given(given: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value + 0.0:.6g}" for name, value in list(given.items())[:3])


def _taken(hit: Hit, reason: Reason) -> str:
    if not hit.picks or reason.reference is None:
        return f"another element of the {hit.set}"
    after, before = hit.picks[reason.conventions[0]], hit.picks[reason.reference]
    return f"{_weights(after)} in place of {_weights(before)} out of {hit.set}"


def _weights(weights: Mapping[str, float]) -> str:
    return (
        number(next(iter(weights.values()))) if len(weights) == 1 else f"({', '.join(map(number, weights.values()))})"
    )


def _both_own(found: Difference) -> Iterator[str]:
    for side, own in zip(SIDES, found.own, strict=True):
        if own.refused is not None:
            yield from wrapped(f"{side} has no gradient of its own: {own.refused}")
    one, other = (own.elements for own in found.own)
    if len(one) == 1 and len(other) == 1:
        yield from wrapped(_single(one[0], other[0]))
    elif one and other:
        sides = " and ".join(f"{side} {_count(len(each))}" for side, each in zip(SIDES, (one, other), strict=True))
        yield from wrapped(f"As whole programs, along {TRIES} directions: {sides}.")


def _single(one: Gradient, other: Gradient) -> str:
    pairs = zip(_entries(one), _entries(other), strict=True)
    if all(number(a) == number(b) for a, b in pairs):
        return "As whole programs both are differentiable here and have the same gradient: subgrad.grad gives it."
    return "As whole programs both are differentiable here, with gradients that differ."


def _entries(gradient: Gradient) -> list[float]:
    return [entry for numbers in gradient.values() for entry in numbers.entries]


def _count(elements: int) -> str:
    return "has one gradient" if elements == 1 else f"is on a kink, with {elements} elements found"
