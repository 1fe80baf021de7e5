"""Pictures of the atlas, drawn as SVG by hand: a function around a kink, and the set with dots above its elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise

from subgrad.report.atlas_curve import Curve, Points
from subgrad.report.atlas_data import Spot, shown
from subgrad.report.elements import number

WIDTH, HEIGHT, EDGE = 220, 130, 12
FLAT = 1e-9
Where = Callable[[float, float], tuple[float, float]]
REACH = 0.5  # of a side, over which slopes are drawn


def curve(drawn: Curve, has_set: bool) -> str:
    """The function, and where there is a set the cone of lines whose slopes lie in it."""
    every = (*drawn.left, *drawn.right)
    width = max(abs(t) for t, _ in every)
    low, high = _range(drawn, width)

    def at(t: float, y: float) -> tuple[float, float]:
        across = WIDTH / 2 + t / width * (WIDTH / 2 - EDGE)
        return across, HEIGHT - EDGE - (y - low) / (high - low) * (HEIGHT - 2 * EDGE)

    parts = [f'<path class="axis" d="M{WIDTH // 2} 0V{HEIGHT}"/>']
    if has_set and drawn.slopes is not None:
        parts += _cone(drawn, REACH * width, at)
    parts += [_line(side, at) for side in _sides(drawn)]
    if math.isfinite(drawn.value):
        x, y = at(0.0, drawn.value)
        parts.append(f'<circle class="point" cx="{_short(x)}" cy="{_short(y)}" r="3.5"/>')
    return _svg("curve", WIDTH, HEIGHT, _described(drawn), parts)


def _svg(kind: str, width: float, height: float, said: str, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {width} {height}"'
    return f'<svg class="{kind}" {box} role="img" aria-label="{escape(said)}">{"".join(parts)}</svg>'


def _described(drawn: Curve) -> str:
    if drawn.slopes is None:
        return f"The value along {drawn.entry}"
    left, right = (number(shown(each)) for each in drawn.slopes)
    return f"The value along {drawn.entry}: slope {left} to the left and {right} to the right of the point"


def _range(drawn: Curve, width: float) -> tuple[float, float]:
    """Of the values; of what goes to infinity, those that are not close to there."""
    far = [y for t, y in (*drawn.left, *drawn.right) if abs(t) >= width / 12]
    values = [
        *(far or [y for _, y in (*drawn.left, *drawn.right)]),
        *([drawn.value] if math.isfinite(drawn.value) else []),
    ]
    if drawn.slopes is not None:
        reach = REACH * width
        values += [drawn.value + side * slope for side in (-reach, reach) for slope in drawn.slopes]
    low, high = min(values), max(values)
    return (low - 1, high + 1) if high - low < FLAT * (1 + abs(high)) + 1e-7 else (low, high)


def _sides(drawn: Curve) -> list[Points]:
    """Joined over the point where nothing jumps there."""
    if not drawn.left or not drawn.right or not math.isfinite(drawn.value):
        return [side for side in (drawn.left, drawn.right) if side]
    near = drawn.left[-1], drawn.right[0]
    span = max(abs(y - drawn.value) for _, y in near)
    whole = (*drawn.left, (0.0, drawn.value), *drawn.right)
    reach = max(y for _, y in whole) - min(y for _, y in whole)
    return [drawn.left, drawn.right] if span > 0.04 * reach + FLAT and drawn.slopes is None else [whole]


def _cone(drawn: Curve, reach: float, at: Where) -> list[str]:
    assert drawn.slopes is not None
    (left, right), value = drawn.slopes, drawn.value
    point = at(0.0, value)
    parts = []
    for side in (-reach, reach):
        ends = [at(side, value + slope * side) for slope in (left, right)]
        parts.append(f'<path class="cone" d="{_path([point, *ends])}Z"/>')
    for side, slope in ((reach, left), (-reach, right)):
        parts.append(f'<path class="slope" d="{_path([point, at(side, value + slope * side)])}"/>')
    return parts


def _line(points: Points, at: Where) -> str:
    return f'<path class="line" d="{_path(_corners([at(*each) for each in points]))}"/>'


def _corners(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without the points that lie on the line between their neighbours."""
    kept = list(points[:1])
    for here, after in pairwise(points[1:]):
        (x, y), (x0, y0), (x1, y1) = here, kept[-1], after
        straight = y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 != x0 else y0
        if abs(straight - y) > 0.08:
            kept.append(here)
    return [*kept, *points[-1:]]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_short(x)} {_short(max(-HEIGHT, min(2 * HEIGHT, y)))}" for x, y in points)


def _short(at: float) -> str:
    return f"{at:.1f}".removesuffix(".0")


# The set as a bar, and the dots.

ACROSS, START, END, DOT, ROWS = 340, 28, 314, 19, 4
SIDE_SLOT = 46  # for what is no number, or drowns all others
LARGE = 1e6
LETTER = 6.3  # the width of one, about


def dots(spot: Spot, symbols: Mapping[str, str]) -> str:
    """The set as a bar from end to end, and above each element the dots of those who return it."""
    groups: dict[float, list[str]] = {}
    for answer in spot.answers:
        if answer.weights is not None:
            sources = groups.setdefault(_key(answer.weights[spot.main]), [])
            sources += [] if answer.source in sources else [answer.source]
    finite = sorted(value for value in groups if abs(value) < LARGE)
    strange = [value for value in groups if value not in finite]
    ends = list(spot.reach or ())
    if not finite and not strange and not ends:
        return ""
    scale = _Scale([*finite, *ends], END - (SIDE_SLOT * len(strange)))
    rows = min(ROWS, max(map(len, groups.values()), default=1))
    base = rows * DOT + 12
    parts = _bar(spot, scale, base) if finite or ends else []
    sizes = [_columns(groups[value]) * DOT for value in finite]
    places = _apart([scale(value) for value in finite], sizes, START - 12, scale.end + 14)
    for value, place in zip(finite, places, strict=True):
        parts.append(f'<path class="lead" d="M{_short(place)} {base - 10}L{_short(scale(value))} {base - 4}"/>')
        parts += _cluster(groups[value], place, base - 10, symbols)
    parts += _labels(sorted({*finite, *ends}), scale, base + 22)
    for count, value in enumerate(strange):
        place = ACROSS / 2 if not finite and not ends else END + 4 - SIDE_SLOT * (len(strange) - 1 - count)
        parts += _cluster(groups[value], place, base - 10, symbols)
        parts.append(f'<text x="{_short(place)}" y="{base + 22}">{number(value)}</text>')
    return _svg("dots", ACROSS, base + 28, _said(spot), parts)


def _key(weight: float) -> float:
    return math.nan if math.isnan(weight) else shown(weight)


class _Scale:
    """From values to places; a value alone lies in the middle."""

    def __init__(self, values: Sequence[float], end: float):
        low, high = (min(values), max(values)) if values else (0.0, 0.0)
        self.low, self.high = (low, high) if high > low else (low - 1, high + 1)
        self.end = end

    def __call__(self, value: float) -> float:
        return START + (value - self.low) / (self.high - self.low) * (self.end - START)


def _bar(spot: Spot, scale: _Scale, base: float) -> list[str]:
    parts = [f'<path class="axis" d="M{START - 10} {base + 2}H{_short(scale.end + 10)}"/>']
    if spot.reach is not None:
        start, end = (scale(each) for each in spot.reach)
        if end - start < 6:
            start, end = start - 3, end + 3
        parts.append(
            f'<rect class="set" x="{_short(start)}" y="{base - 2}" width="{_short(end - start)}" height="8" rx="3"/>'
        )
    if spot.least is not None and spot.least:
        parts.append(f'<circle class="least" cx="{_short(scale(spot.least[spot.main]))}" cy="{base + 2}" r="3.2"/>')
    return parts


def _columns(sources: Sequence[str]) -> int:
    return math.ceil(len(sources) / ROWS)


def _cluster(sources: Sequence[str], place: float, bottom: float, symbols: Mapping[str, str]) -> list[str]:
    """Dots in columns, filled from below."""
    columns = _columns(sources)
    rows = math.ceil(len(sources) / columns)
    left = place - DOT * (columns - 1) / 2
    return [
        f'<use href="#{symbols[source]}" x="{_short(left + DOT * (count // rows))}" '
        f'y="{_short(bottom - DOT / 2 - DOT * (count % rows))}"/>'
        for count, source in enumerate(sources)
    ]


def _apart(places: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Places in rising order moved as little as it takes for them not to overlap, nor to leave the picture."""
    moved: list[float] = []
    edge = low
    for place, size in zip(places, sizes, strict=True):
        moved.append(max(place, edge + size / 2))
        edge = moved[-1] + size / 2 + 3
    edge = high
    for count in reversed(range(len(moved))):
        moved[count] = min(moved[count], edge - sizes[count] / 2)
        edge = moved[count] - sizes[count] / 2 - 3
    return moved


def _labels(values: Sequence[float], scale: _Scale, height: float) -> list[str]:
    said = [number(value) for value in values]
    places = _apart([scale(value) for value in values], [LETTER * len(each) + 6 for each in said], 0, scale.end + 24)
    return [f'<text x="{_short(x)}" y="{height}">{each}</text>' for x, each in zip(places, said, strict=True)]


def _said(spot: Spot) -> str:
    name = spot.names[spot.main]
    if spot.reach is None:
        return f"There is no set. Weights of {name} that are returned; listed below"
    low, high = map(number, spot.reach)
    return f"The set for {name} reaches from {low} to {high}; who returns which weight is listed below"
