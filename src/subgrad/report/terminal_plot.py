"""Curves in plain characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

LABEL = 10  # columns beside the curve


@dataclass(frozen=True)
class Mark:
    """A letter at a height above the middle."""

    letter: str
    height: float


def plot(heights: Sequence[float], marks: Sequence[Mark], rows: int, between: tuple[float, ...] = ()) -> list[str]:
    """Lines of a picture: a column for each height, and a further one for the marks in the middle.

    >>> from subgrad.report.terminal_plot import Mark, plot
    >>> print("\\n".join(plot([0.0, 0.0, 1.0, 1.0], [Mark("o", 0.0)], 3, (0.0, 1.0))))
             1 |  :**
           0.5 |  :
             0 |**o

    Args:
        heights: an even number of them, half on each side. What is not finite is left out.
        marks: later ones over earlier ones.
        rows: of the picture.
        between: what a dotted line in the middle spans.
    """
    shown = [each for each in (*heights, *(mark.height for mark in marks), *between) if isfinite(each)]
    low, high = (min(shown), max(shown)) if shown else (0.0, 0.0)
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        low, high = low - 0.5, high + 0.5
    middle, width = len(heights) // 2, len(heights) + 1
    cells = [[" "] * width for _ in range(rows)]

    def row(height: float) -> int:
        return rows - 1 - round((height - low) / (high - low) * (rows - 1))

    spanned = [row(each) for each in between if isfinite(each)]
    for each in range(min(spanned), max(spanned) + 1) if spanned else ():
        cells[each][middle] = ":"
    for place, height in enumerate(heights):
        if isfinite(height):
            cells[row(height)][place + (place >= middle)] = "*"
    for mark in marks:
        if isfinite(mark.height):
            cells[row(mark.height)][middle] = mark.letter
    labels = {0: high, rows // 2: (high + low) / 2, rows - 1: low}
    return [
        f"{f'{labels[number]:.4g}' if number in labels else '':>{LABEL}} |{''.join(line)}".rstrip()
        for number, line in enumerate(cells)
    ]
