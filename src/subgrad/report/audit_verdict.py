"""What an audit comes to, for its page: the size of the change, the lines responsible, and what to write."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from subgrad.audit.call_site import Site
from subgrad.audit.effects import Cause, Effect, plural, size, spelled
from subgrad.audit.result import Audit, Row
from subgrad.conventions import Spot, convention
from subgrad.kinks import KINKS
from subgrad.kinks.sets import Slopes
from subgrad.report.audit_text import share
from subgrad.report.elements import number
from subgrad.report.html import breakable

AROUND = 3  # lines of source before and after the one that is marked
MOST = 12  # lines that are shown in their source


@dataclass(frozen=True)
class Guilty:
    """A line because of which gradients differ between two conventions, over all comparisons.

    Attributes:
        largest: what it does where it does most.
        steps: in which it does something.
        compared: in how many backwards the conventions were.
    """

    before: str
    after: str
    largest: Cause
    steps: tuple[int, ...]
    compared: int


def guilty(effects: Sequence[Effect]) -> list[Guilty]:
    """One for each line, operator and pair of conventions, those with the largest changes first."""
    found: dict[tuple[str, str, Site, str], list[tuple[int, Cause]]] = {}
    compared: dict[tuple[str, str], int] = {}
    for effect in effects:
        pair = (effect.before, effect.after)
        compared[pair] = compared.get(pair, 0) + 1
        for cause in effect.causes:
            found.setdefault((*pair, cause.site, cause.operator), []).append((effect.step, cause))
    made = []
    for (before, after, *_), causes in found.items():
        largest = max((cause for _, cause in causes), key=_size)
        steps = tuple(dict.fromkeys(step for step, _ in causes))
        made.append(Guilty(before, after, largest, steps, compared[before, after]))
    return sorted(made, key=lambda each: _size(each.largest), reverse=True)


def _size(cause: Cause) -> tuple[float, int]:
    return float("inf") if cause.relative is None else cause.relative, cause.differ


def verdicts(audit: Audit) -> str:
    """One card for each pair of conventions."""
    worst = list(audit.worst.items())
    cards = [_card(effect, audit) for _, effect in worst]
    said = {effect.verdict for _, effect in worst}
    rest = [f'<div class="verdict open"><p>{escape(each)}</p></div>' for each in audit.verdicts if each not in said]
    return "".join([*cards, *rest])


def _card(effect: Effect, audit: Audit) -> str:
    among = [each for each in audit.effects if (each.before, each.after) == (effect.before, effect.after)]
    changed = sum(each.differing > 0 for each in among)
    pin = effect.pin if effect.causes else ""
    sentence = f"<p>{breakable(effect.verdict.replace(pin, '').strip())}</p>"
    times = f"{plural(len(among), 'backward')} compared"
    if changed and len(among) > 1:
        times = f"{times}, {changed:,} of them {'differs' if changed == 1 else 'differ'}"
    if not effect.differing:
        kind = "open" if effect.unseen else "same"
        return f'<div class="verdict {kind}">{sentence}<p class="soft">{times}.</p></div>'
    large = escape(size(effect.relative)) if effect.relative is not None else "from 0"
    of = "of the gradient" if effect.relative is not None else ""
    return (
        f'<div class="verdict differs"><p class="size"><b>{large}</b> {of}</p><div>{sentence}'
        f'<p class="soft">{times}; most entries change in step {effect.step:,}, backward at '
        f"{breakable(str(effect.site))}.</p>{_change(effect)}</div></div>"
    )


def _change(effect: Effect) -> str:
    """What to write to keep the gradients of before."""
    if not effect.causes:
        return ""
    sites = list(dict.fromkeys(cause.site for cause in effect.causes))
    pinned = spelled(effect.before)
    if any(site.is_installed for site in sites):
        where = "before the run, since the line is one of an installed package"
        return _copied(where, f"subgrad.set_default({pinned})")
    blocks = "\n".join(_around(site, pinned) for site in sites[:MOST])
    return _copied(f"at {', '.join(map(str, sites[:MOST]))}", blocks)


def _copied(where: str, code: str) -> str:
    keep = f'<p class="keep">To keep the gradients of before, {breakable(where)}:</p>'
    return f'{keep}<pre class="copy">{escape(code)}</pre>'


def _around(site: Site, pinned: str) -> str:
    """The line in a block of its own, if it can stand alone."""
    use = f"with subgrad.use({pinned}):"
    return f"{use}\n    {site.source}" if _is_statement(site.source) else f"{use}  # around {site}"


def _is_statement(source: str) -> bool:
    try:
        tree = ast.parse(f"def f():\n    {source}")
    except SyntaxError:
        return False
    return bool(source) and len(tree.body) == 1


def responsible(audit: Audit) -> str:
    """The lines responsible, each marked in its source, with what it does."""
    lines = guilty(audit.effects)
    more = f'<p class="soft">And {len(lines) - MOST:,} more.</p>' if len(lines) > MOST else ""
    return "".join(_marked(each, audit.rows) for each in lines[:MOST]) + more


def _marked(each: Guilty, rows: Sequence[Row]) -> str:
    site, cause = each.largest.site, each.largest
    met = [row for row in rows if (row.site, row.operator) == (site, cause.operator) and row.total.hits]
    places = "".join(f"<li>{_place(row, each)}</li>" for row in met)
    alone = "Switched alone, it changes" if cause.alone else "Together with the others it changes"
    signs = f", {plural(cause.flips, 'sign')}" if cause.flips else ""
    by = "" if cause.relative is None else f", by up to {size(cause.relative)}"
    often = f"in {_steps(each.steps)}, of {plural(each.compared, 'backward')} compared"
    does = f"{alone} {plural(cause.parameters, 'parameter')}, {plural(cause.differ, 'entry', 'entries')}{signs}{by}"
    return (
        f'<article class="guilty"><h3><code>{breakable(str(site))}</code> <span class="soft">'
        f"{breakable(site.function)}: {escape(cause.operator)}</span></h3>{excerpt(site)}"
        f"<ul>{places}<li>{does}, {often}.</li></ul></article>"
    )


def _place(row: Row, each: Guilty) -> str:
    total = row.total
    inside = f" in module <code>{breakable(row.module)}</code>" if row.module else ""
    said = (
        f"{total.hits:,} of {plural(total.entries, 'entry', 'entries')} ({share(row.share)}) lie on "
        f"<code>{escape(row.kink)}</code>{inside}"
    )
    taken = [(name, slope(row, name)) for name in (each.before, each.after)]
    if any(element is None for _, element in taken):
        return f"{said}."
    if len({element for _, element in taken}) == 1:
        slopes = f"both have slope {taken[0][1]}"
    else:
        slopes = " and ".join(f"{escape(name)} has slope {element}" for name, element in taken)
    return f"{said}, where {slopes}; the set is {escape(row.set)}."


def slope(row: Row, name: str) -> str | None:
    """What a convention takes at the kink of a row, where that is one number that the table knows."""
    for kink in KINKS[row.operator] if row.operator in KINKS.names else ():
        if kink.place == row.kink and isinstance(kink.set, Slopes):
            try:
                taken = convention(name).element(Spot(kink, kink.set.at({}), ("self",)))
            except (KeyError, NameError, TypeError, ValueError):  # slopes that depend on the call; an own convention
                return None
            weight = taken.get("self") if taken else None
            return number(weight) if isinstance(weight, int | float) else None
    return None


def excerpt(site: Site) -> str:
    """The line with those around it, if its file is here and still says the same; else the line alone."""
    lines = [each.rstrip() for each in linecache.getlines(site.file)] if site.file else []
    if not 0 < site.line <= len(lines) or lines[site.line - 1].strip() != site.source:
        return f'<pre class="excerpt">{_numbered(site.line, site.source, "mark")}</pre>' if site.source else ""
    first, last = max(1, site.line - AROUND), min(len(lines), site.line + AROUND)
    shown = textwrap.dedent("\n".join(lines[first - 1 : last])).rstrip().split("\n")
    made = (_numbered(at, text, "mark" if at == site.line else "span") for at, text in enumerate(shown, first))
    return f'<pre class="excerpt">{"".join(made)}</pre>'


def _numbered(line: int, text: str, tag: str) -> str:
    return f"<{tag}><i>{line}</i><code>{escape(text)}</code></{tag}>"


def _steps(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]:,}"
    return f"{len(steps):,} steps from {steps[0]:,} to {steps[-1]:,}"
