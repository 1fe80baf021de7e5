"""An expression at a point, in lines of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subgrad.conventions import CHOICES
from subgrad.explain.numbers import Index, named
from subgrad.explain.profile import Profile
from subgrad.explain.program import INSTALLED, TRIES, Explanation, Gradient, Hit, Own
from subgrad.report.elements import WIDTH, columns, number, wrapped
from subgrad.report.terminal_plot import Mark, plot

FEW = 6  # entries of a gradient that are shown whole
GAPS = 4  # entries in which two gradients differ
HITS, UNMOVED = 8, 2
CURVE, SLOPES = 9, 7  # rows


def text(found: Explanation, drawn: Profile | None = None) -> str:
    """All there is to say, and a picture."""
    lines = [*head([("", found.text)], found.at, found.dtype)]
    lines += wrapped(value(found.value, found.entries), "value   ")
    lines += ["", *hits([("", hit) for hit in found.hits])]
    lines += ["", *_gradients(found)]
    if drawn is not None:
        lines += ["", *picture(drawn, found)]
    return "\n".join(lines)


# What is explained.


def head(texts: Sequence[tuple[str, str]], at: Gradient, dtype: str) -> Iterator[str]:
    for side, text in texts:
        yield from wrapped(text, f"{side}  " if side else "")
    points = ", ".join(f"{name} = {_written(each.nested())}" for name, each in at.items())
    yield from wrapped(f"{points} ({dtype})", "at ")


def _written(numbers: Any) -> str:
    """``[[3, 2], [1, 0.5]]``, without the zeros behind points."""
    if isinstance(numbers, list):
        return f"[{', '.join(map(_written, numbers))}]"
    return f"{numbers:.6g}"


def value(value: float, entries: int) -> str:
    return f"{value:.10g}" + ("" if entries == 1 else f", the sum of {entries} entries, which is differentiated")


# Kinks.


def hits(given: Sequence[tuple[str, Hit]]) -> Iterator[str]:
    if not given:
        yield "on no kink"
        return
    yield "on a kink"
    for line in columns([_hit(side, hit) for side, hit in given[:HITS]]):
        yield from wrapped(line.strip(), "  ") if len(line) > WIDTH - 2 else [f"  {line}"]
    if len(given) > HITS:
        yield f"  and {len(given) - HITS} more"


def _hit(side: str, hit: Hit) -> tuple[str, ...]:
    where = f"at {index(hit.entries[0].index)}" if hit.entries and hit.entries[0].index else ""
    if hit.count > 1:
        where = f"{where} and {hit.count - 1} more".strip() if where else f"{hit.count} places"
    row = (hit.source, where, f"{hit.operator}: {hit.place}", hit.set)
    return (side, *row) if side else row


def index(index: Index) -> str:
    return f"[{','.join(map(str, index))}]"


# Gradients.


def _gradients(found: Explanation) -> Iterator[str]:
    shown, left = _shown(found)
    if not shown:
        yield "gradient   of nothing: there are no entries"
        return
    rows = [(*(named(name, index) for name, index in shown), "")]
    for names, gradient in _grouped(found.gradients):
        rows.append((*(number(gradient[name][index]) for name, index in shown), conventions(names, found.torch)))
    for label, gradient in _own_rows(found.own):
        rows.append((*(number(gradient[name][index]) for name, index in shown), label))
    yield "gradient"
    width = len(columns([row[:-1] for row in rows], range(len(shown)))[0])
    for row, numbers in zip(rows, columns([row[:-1] for row in rows], range(len(shown))), strict=True):
        yield from (line.rstrip() for line in wrapped(row[-1], f"  {numbers.ljust(width)}   "))
    if left:
        yield from wrapped(f"The other {left} entries are the same under all of them.", "  ")
    yield from _own_said(found.own)


def _shown(found: Explanation) -> tuple[list[tuple[str, Index]], int]:
    """All entries if they are few, else those in which gradients differ; and how many are left out."""
    every = [(name, index) for name in found.wrt for index, _ in found.gradients[INSTALLED][name].items()]
    if len(every) <= FEW:
        return every, 0
    gradients = [*found.gradients.values(), *found.own.elements]
    differing = [(name, index) for name, index in every if len({number(each[name][index]) for each in gradients}) > 1]
    return (differing or every)[:FEW], len(every) - len(differing) if differing else 0


def _grouped(gradients: Mapping[str, Gradient]) -> list[tuple[list[str], Gradient]]:
    """Conventions with the same gradient together, the installed torch first."""
    groups: dict[str, tuple[list[str], Gradient]] = {}
    for name in sorted(gradients, key=_order):
        groups.setdefault(_key(gradients[name]), ([], gradients[name]))[0].append(name)
    return list(groups.values())


def _key(gradient: Gradient) -> str:
    return repr([[each + 0.0 for each in numbers.entries] for numbers in gradient.values()])


def _order(name: str) -> tuple[bool, bool]:
    return name != INSTALLED, not name.startswith("torch-")


def conventions(names: Sequence[str], version: str) -> str:
    if len(names) == len(CHOICES):
        return "every convention"
    installed = f"torch {version.partition('+')[0]}"
    return ", ".join(installed if name == INSTALLED else name for name in sorted(names, key=_order))


def _own_rows(own: Own) -> Iterator[tuple[str, Gradient]]:
    if len(own.elements) == 1:
        yield "the expression's own", own.elements[0]
        return
    more = len(own.elements) - GAPS
    for place, each in enumerate(own.elements[:GAPS]):
        last = f"another, and {more} more" if more > 0 and place == GAPS - 1 else "another"
        yield ("elements of its own set" if place == 0 else last, each)
    if own.least is not None:
        yield "the least of its set" if own.is_convex else "the least among those found", own.least


def _own_said(own: Own) -> Iterator[str]:
    if own.refused is not None:
        yield from wrapped(f"It has no gradient of its own: {own.refused}", "  ")
    elif len(own.elements) == 1 and own.kinks:
        yield from wrapped(f"Its own is one along {TRIES} directions: differentiable here, for all they tell.", "  ")
    if own.extrapolated:
        yield from wrapped("No rule led to it: it is the limit of torch's gradients nearby.", "  ")


# A picture.


def picture(drawn: Profile, found: Explanation) -> list[str]:
    """The values and the slopes around the point."""
    left, right = drawn.places[0], drawn.places[-1]
    axis = f"{drawn.axis} from {left:.4g} to {right:.4g}"
    torchs = drawn.picks[INSTALLED]
    marks = [Mark("x", each) for each in drawn.own]
    letter = "8" if torchs in drawn.own else "o"
    marks.append(Mark(letter, torchs))
    legend = f"o torch {found.torch.partition('+')[0]}" + (", x its own" if drawn.own else "")
    legend += ", 8 both" if letter == "8" else ""
    sides = tuple(drawn.slopes[len(drawn.slopes) // 2 - 1 :][:2])
    return [
        f"value, {axis}",
        *plot(drawn.values, [Mark("o", drawn.value)], CURVE),
        f"slope ({legend})",
        *plot(drawn.slopes, marks, SLOPES, (*sides, *drawn.picks.values())),
    ]
