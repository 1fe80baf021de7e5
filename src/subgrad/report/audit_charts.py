"""Pictures of an audit: hits over time, distances to kinks, differences of gradients.

Lines are SVG that is stretched to the page; all text is HTML, so that it has one size on every screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from subgrad.audit.effects import Change, Effect
from subgrad.audit.result import DECADES, Audit
from subgrad.report.html import breakable

HEIGHT = 220
# Told apart also by those who see few colours (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
OTHERS = "others"
MOST_PARAMETERS = 60
FAINTEST = 1e-6  # relative differences from which on a cell is as faint as it gets
Cell = tuple[int, float | None, str]  # of the heat map: step, relative difference, and what it says


def over_time(audit: Audit) -> str:
    """Hits of each recorded step, by module: those with the most, and the others together. Of one step, bars."""
    series = hits_by_module(audit)
    steps = list(audit.recorded)
    if not steps or not any(any(each.values()) for each in series.values()):
        return ""
    if len(steps) == 1:
        return bars({name: found.get(steps[0], 0) for name, found in series.items()})
    ticks = _ticks(max(max(each.values(), default=0) for each in series.values()))
    span = steps[-1] - steps[0]
    drawn = []
    for colour, found in zip(COLOURS, series.values(), strict=False):
        points = " ".join(
            f"{1000 * (step - steps[0]) / span:.1f},{HEIGHT * (1 - found.get(step, 0) / ticks[-1]):.1f}"
            for step in steps
        )
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
            'vector-effect="non-scaling-stroke"/>'
        )
    return _plot("Hits over time", drawn, ticks, _times(steps)) + _legend(series)


def hits_by_module(audit: Audit) -> dict[str, dict[int, int]]:
    """Hits by module, or by line outside of all, and by step; the ones with the most first."""
    found: dict[str, dict[int, int]] = {}
    for row in audit.rows:
        steps = found.setdefault(row.module or str(row.site), {})
        for count in row.series:
            steps[count.step] = steps.get(count.step, 0) + count.hits
    order = sorted(found, key=lambda name: -sum(found[name].values()))
    kept = {name: found[name] for name in order[: len(COLOURS) - 1] if any(found[name].values())}
    rest: dict[int, int] = {}
    for name in order[len(COLOURS) - 1 :]:
        for step, hits in found[name].items():
            rest[step] = rest.get(step, 0) + hits
    return {**kept, OTHERS: rest} if any(rest.values()) else kept


def distances(audit: Audit) -> str:
    """How far from their nearest kink the entries lie that are not on it, of a sample."""
    bins = [0] * (len(DECADES) + 1)
    for row in audit.rows:
        for place, count in enumerate(row.distances):
            bins[place] += count
    if not any(bins):
        return ""
    slot, ticks = 1000 / len(bins), _ticks(max(bins))
    labels = ["0", *(f"1e{k}" for k in DECADES)]
    drawn = []
    for place, count in enumerate(bins):
        height = HEIGHT * count / ticks[-1]
        drawn.append(
            f'<rect class="bar" x="{slot * place + 2:.1f}" y="{HEIGHT - height:.1f}" width="{slot - 4:.1f}" '
            f'height="{height:.1f}"><title>from {labels[place]}: {count:,}</title></rect>'
        )
    across = [(100 * place / len(bins), label) for place, label in enumerate(labels) if place % 4 == 1]
    return _plot("Distances to the nearest kink", drawn, ticks, across)


def heat(effects: Sequence[Effect]) -> str:
    """Relative differences of gradients: parameters down, time across. Of one step, bars."""
    pairs = dict.fromkeys((each.before, each.after) for each in effects if each.differing)
    return "".join(
        _heat_of(pair, [each for each in effects if (each.before, each.after) == pair], len(pairs) > 1)
        for pair in pairs
    )


def _heat_of(pair: tuple[str, str], effects: Sequence[Effect], is_named: bool) -> str:
    cells: dict[str, list[Cell]] = {}
    for effect in effects:
        for change in effect.changes:
            if change.differ:
                cells.setdefault(change.parameter, []).append((effect.step, change.relative, _said(change)))
    steps = sorted({effect.step for effect in effects})
    kept = list(cells)[:MOST_PARAMETERS]
    rows = "".join(
        f'<div class="name">{breakable(name)}</div><div class="strip">{_cells(name, cells[name], steps)}</div>'
        for name in kept
    )
    title = f"<h3>{escape(pair[0])} and {escape(pair[1])}</h3>" if is_named else ""
    more = f'<p class="soft">{len(cells) - len(kept):,} more parameters differ.</p>' if len(cells) > len(kept) else ""
    axis = (
        "" if len(steps) == 1 else f'<div class="name soft">step</div><div class="axis">{_labels(_times(steps))}</div>'
    )
    said = f"Relative differences of gradients, {pair[0]} and {pair[1]}"
    return f'{title}<div class="heat" role="img" aria-label="{escape(said)}">{rows}{axis}</div>{_scale(steps)}{more}'


def _cells(name: str, cells: Sequence[Cell], steps: Sequence[int]) -> str:
    """The steps of one parameter where they lie in time; one step alone, as long as its difference is large."""
    if len(steps) == 1:
        _, relative, said = max(cells, key=lambda cell: _strength(cell[1]))
        width = 100 * min(1.0, relative) if relative is not None else 100
        return f'<i style="left:0;width:{max(1, width):.1f}%"></i><b>{escape(said)}</b>'
    gap = min(b - a for a, b in pairwise(steps))
    wide = max(1.2, 100 * gap / (steps[-1] - steps[0] + gap))
    made = []
    for step, relative, said in cells:
        at = (100 - wide) * (step - steps[0]) / (steps[-1] - steps[0])
        made.append(
            f'<i style="left:{at:.2f}%;width:{wide:.2f}%;opacity:{_strength(relative):.2f}" '
            f'title="{escape(name)}, step {step:,}: {escape(said)}"></i>'
        )
    return "".join(made)


def _scale(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f'<p class="soft">Of the norm of each gradient, in step {steps[0]:,}, the one that was compared.</p>'
    return (
        '<p class="scale soft">Difference over the norm of the gradient: <span>1e-6</span><i></i>'
        "<span>100 %, more, or from 0; nothing drawn: no difference</span></p>"
    )


def _said(change: Change) -> str:
    relative = "from zero" if change.relative is None else f"{change.relative:.2%}"
    return f"{relative}, {change.differ:,} of {change.entries:,} entries"


def _strength(relative: float | None) -> float:
    """From 0 to 1: differences span many orders of magnitude."""
    if relative is None:
        return 1.0
    return min(1.0, max(0.12, 1 - math.log10(max(relative, FAINTEST)) / math.log10(FAINTEST)))


def bars(numbers: dict[str, int]) -> str:
    """One bar for each name, with its number."""
    most = max(numbers.values())
    return '<div class="heat">' + "".join(
        f'<div class="name">{breakable(name)}</div><div class="strip"><i class="count" '
        f'style="left:0;width:{max(1, 100 * count / most):.1f}%"></i><b>{count:,}</b></div>'
        for name, count in numbers.items()
    ) + "</div>"  # fmt: skip


def _ticks(top: float) -> list[float]:
    """Round numbers from 0 to the first one that is not below the top."""
    step = 10 ** math.floor(math.log10(max(top, 1)))
    step = next(each for each in (step / 2 if step > 1 else 1, step, 2 * step) if top / each <= 5)
    return [step * i for i in range(math.ceil(max(top, 1) / step) + 1)]


def _times(steps: Sequence[int]) -> list[tuple[float, str]]:
    """Some of the steps, where they lie in time, in percent."""
    some = list(dict.fromkeys(steps[round(i * (len(steps) - 1) / 4)] for i in range(5)))
    span = steps[-1] - steps[0]
    return [(100 * (step - steps[0]) / span, f"{step:,}") for step in some]


def _plot(title: str, drawn: Iterable[str], ticks: Sequence[float], across: Sequence[tuple[float, str]]) -> str:
    heights = [HEIGHT * (1 - tick / ticks[-1]) for tick in ticks]
    grid = "".join(
        f'<line class="grid" x1="0" x2="1000" y1="{y:.1f}" y2="{y:.1f}" vector-effect="non-scaling-stroke"/>'
        for y in heights
    )
    up = "".join(
        f'<span style="top:{100 * y / HEIGHT:.1f}%">{tick:,.0f}</span>' for y, tick in zip(heights, ticks, strict=True)
    )
    return (
        f'<div class="plot"><div class="up">{up}</div><svg viewBox="0 0 1000 {HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{title}">{grid}{"".join(drawn)}</svg><div class="axis">{_labels(across)}</div></div>'
    )


def _labels(across: Sequence[tuple[float, str]]) -> str:
    return "".join(f'<span style="left:{at:.2f}%">{label}</span>' for at, label in across)


def _legend(names: Iterable[str]) -> str:
    marks = (
        f'<span><i style="background:{colour}"></i>{breakable(name)}</span>'
        for name, colour in zip(names, COLOURS, strict=False)
    )
    return f'<p class="legend soft">{"".join(marks)}</p>'
