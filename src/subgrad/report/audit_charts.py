"""Pictures of an audit: hits over time, distances to kinks, differences of gradients. Drawn as SVG, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from subgrad.audit.effects import Effect
from subgrad.audit.result import DECADES, Audit

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 860, 240, 64, 28, 10
# Told apart also by those who see few colours (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
OTHERS = "others"
MOST_PARAMETERS, MOST_STEPS = 60, 24


def over_time(audit: Audit) -> str:
    """Hits of each recorded step, by module: those with the most, and the others together."""
    series = hits_by_module(audit)
    steps = list(audit.recorded)
    if not steps or not any(any(each.values()) for each in series.values()):
        return ""
    top = max(max(each.values(), default=0) for each in series.values())
    x = _scale(steps[0], steps[-1], LEFT, WIDTH - 10)
    y = _scale(0, top, HEIGHT - BOTTOM, TOP)
    drawn = [_axes([(x(step), str(step)) for step in _some(steps)], [(y(at), f"{at:,.0f}") for at in _ticks(top)])]
    for colour, found in zip(COLOURS, series.values(), strict=False):
        points = " ".join(f"{x(step):.1f},{y(found.get(step, 0)):.1f}" for step in steps)
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(steps) == 1:
            drawn.append(f'<circle cx="{x(steps[0]):.1f}" cy="{y(found.get(steps[0], 0)):.1f}" r="4" fill="{colour}"/>')
    return _svg("Hits over time", drawn, HEIGHT) + _legend(list(series))


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
    slot, top = (WIDTH - LEFT - 10) / len(bins), max(bins)
    y = _scale(0, top, HEIGHT - BOTTOM, TOP)
    labels = ["0", *(f"1e{k}" for k in DECADES)]
    marks = [(LEFT + slot * place, label) for place, label in enumerate(labels) if place % 2 == 0]
    drawn = [_axes(marks, [(y(at), f"{at:,.0f}") for at in _ticks(top)])]
    for place, count in enumerate(bins):
        height = HEIGHT - BOTTOM - y(count)
        drawn.append(
            f'<rect class="bar" x="{LEFT + slot * place + 1:.1f}" y="{y(count):.1f}" width="{slot - 2:.1f}" '
            f'height="{height:.1f}"><title>from {labels[place]}: {count:,}</title></rect>'
        )
    return _svg("Distances to the nearest kink", drawn, HEIGHT)


def heat(effects: Sequence[Effect]) -> str:
    """Relative differences of gradients: parameters down, comparisons across."""
    shown = list(effects)[-MOST_STEPS:]
    names = list(dict.fromkeys(change.parameter for effect in shown for change in effect.changes if change.differ))
    if not names:
        return ""
    kept, left, cell, row = names[:MOST_PARAMETERS], 260, min(60, 590 // len(shown)), 18
    height = 40 + row * len(kept)
    drawn = []
    for place, effect in enumerate(shown):
        x = left + place * cell
        drawn.append(f'<text x="{x + cell / 2:.1f}" y="14" text-anchor="middle">{effect.step}</text>')
        changes = {change.parameter: change for change in effect.changes}
        for line, name in enumerate(kept):
            change = changes.get(name)
            relative = None if change is None or not change.differ else change.relative
            size = 0.0 if change is None or not change.differ else _strength(relative)
            said = "no difference" if not size else f"{change.differ:,} entries, {_relative(relative)}"  # type: ignore[union-attr]
            drawn.append(
                f'<rect x="{x}" y="{22 + line * row}" width="{cell - 2}" height="{row - 2}" fill="#d55e00" '
                f'fill-opacity="{0.04 + 0.96 * size:.2f}"><title>{escape(name)}, step {effect.step}, '
                f"{escape(effect.before)} and {escape(effect.after)}: {said}</title></rect>"
            )
    for line, name in enumerate(kept):
        label = name if len(name) <= 38 else f"…{name[-37:]}"
        drawn.append(f'<text x="{left - 8}" y="{35 + line * row}" text-anchor="end">{escape(label)}</text>')
    more = f'<p class="soft">{len(names) - len(kept):,} more parameters differ.</p>' if len(names) > len(kept) else ""
    return _svg("Differences of gradients", drawn, height) + more


def _relative(relative: float | None) -> str:
    return "from zero" if relative is None else f"{relative:.2%} of the gradient"


def _strength(relative: float | None) -> float:
    """From 0 to 1: differences span many orders of magnitude."""
    return 1.0 if relative is None else min(1.0, max(0.1, 1 + math.log10(max(relative, 1e-9)) / 6))


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    width = (high - low) or 1
    return lambda at: start + (at - low) / width * (end - start)


def _ticks(top: float) -> list[float]:
    step = 10 ** math.floor(math.log10(max(top, 1)))
    step = step if top / step >= 3 else step / 2 if step > 1 else 1
    return [step * i for i in range(int(top / step) + 1)]


def _some(steps: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(steps[round(i * (len(steps) - 1) / 7)] for i in range(8)))


def _axes(across: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]]) -> str:
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        for y, label in up
    ]
    lines += [f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>' for x, label in across]
    return "".join(lines)


def _legend(names: Sequence[str]) -> str:
    marks = (
        f'<svg width="12" height="12" viewBox="0 0 12 12" style="display:inline">'
        f'<rect width="12" height="12" rx="2" fill="{colour}"/></svg> {escape(name)}'
        for name, colour in zip(names, COLOURS, strict=False)
    )
    return f'<p class="soft">{" &emsp; ".join(marks)}</p>'


def _svg(title: str, drawn: Sequence[str], height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{title}">{"".join(drawn)}</svg>'
    )
