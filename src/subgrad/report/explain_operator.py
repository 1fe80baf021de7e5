"""An operator on one screen: where its kinks are, the sets, who takes what, and what torch changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from subgrad.explain.operators import Composite, Operator, Pick, Row
from subgrad.explain.upstream import Change
from subgrad.report.elements import WIDTH, call, element, wrapped

PLACE = 36  # columns of a place, so that sets stand below each other
INSTALLED, ALL = "torch", "every convention"


def text(found: Operator | Composite) -> str:
    """All there is to say, in lines of 80 columns."""
    return "\n".join(_composite(found) if isinstance(found, Composite) else _operator(found))


def _composite(found: Composite) -> Iterator[str]:
    names = ", ".join(each.name for each in found.calls)
    yield from wrapped(f"{found.name} has no kinks of its own: they are those of what it calls, {names}.")
    for each in found.calls:
        yield ""
        yield from _operator(each)


def _operator(found: Operator) -> Iterator[str]:
    yield from wrapped(f"{found.name}: {found.what}. {_here(found)}".strip())
    overload = ""
    for row in (*found.rows, *found.jumps):
        if row.overload != overload:
            overload = row.overload
            yield from ("", overload)
        yield from _row(row, _column(found))
    yield from _broken(found)
    if found.change is not None:
        yield ""
        yield from _change(found.change)
    if found.callers:
        yield ""
        yield from wrapped(f"Also met through {', '.join(found.callers)}.")


def _version(found: Operator) -> str:
    return f"torch {found.torch.partition('+')[0]}"


def _column(found: Operator) -> str | None:
    """The convention that is what the installed torch does at all of these kinks."""
    for name in ("torch-2.14", "torch-2.13"):
        picks = [pick.conventions for row in found.rows for pick in (*row.picks, *row.constant)]
        if all((INSTALLED in each) == (name in each) for each in picks):
            return name
    return None


def _here(found: Operator) -> str:
    column = _column(found)
    if not found.rows:
        return ""
    return f"Here is {_version(found)}." if column is None else f"{_version(found)} here returns what {column} does."


def _row(row: Row, column: str | None) -> Iterator[str]:
    given = ", ".join(f"{name}={value}" for name, value in row.arguments.items())
    for place in row.places[:-1]:
        yield from wrapped(place, "  ")
    last = f"  {row.places[-1]}{f', for {given}' if given else ''}"
    if len(last) < PLACE:
        yield from wrapped(row.set, last.ljust(PLACE))
    else:
        yield from wrapped(last.strip(), "  ")
        yield from wrapped(row.set, " " * PLACE)
    if len(row.picks) == 1 and not row.constant:
        yield from wrapped(ALL, f"    {element(row.picks[0].element)}  ")
        return
    units = [f"{element(pick.element)}  {_named(pick, column)}" for pick in row.picks]
    others = ", ".join(row.differentiated[1:])
    units += [f"{element(pick.element)}  {_named(pick, column)} ({others} constant)" for pick in row.constant]
    yield from packed(units)


def packed(units: Sequence[str]) -> Iterator[str]:
    """Short ones beside each other."""
    lines: list[str] = []
    for unit in units:
        place = next((i for i, line in enumerate(lines) if len(line) + len(unit) + 4 <= WIDTH), None)
        if place is None:
            lines.append(f"    {unit}")
        else:
            lines[place] += f"    {unit}"
    for line in lines:
        yield from [line] if len(line) <= WIDTH else wrapped(line.strip(), "    ")


def _named(pick: Pick, column: str | None) -> str:
    """Who takes an element; the installed torch where it is not as one of its columns."""
    names = [each for each in pick.conventions if column is None or each != INSTALLED]
    names.sort(key=lambda each: (each != INSTALLED, not each.startswith("torch-")))
    return ", ".join("torch here" if each == INSTALLED else each for each in names)


def _broken(found: Operator) -> Iterator[str]:
    if not found.broken:
        return
    yield ""
    calls = dict.fromkeys(f"{call(each)} at {each.place}" for each in found.broken)
    more = f", and {len(calls) - 1} more" if len(calls) > 1 else ""
    asked = f"subgrad survey {found.name} --broken"
    yield from wrapped(f"{_version(found)} breaks its documented rule: {next(iter(calls))}{more} ({asked}).")


def _change(change: Change) -> Iterator[str]:
    yield from wrapped(f'Changed in {change.since}. {change.what} {change.why} Kept by subgrad.use("{change.keep}").')
    yield from wrapped(", ".join(f"{reference} ({about})" for reference, about in change.references), "See ")
