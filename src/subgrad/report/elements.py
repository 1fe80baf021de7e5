"""Elements, calls and lists of names as people write them, and lines that fit 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from fractions import Fraction

from subgrad.survey.finding import Finding, Measured

WIDTH = 80
SHOWN = 4


def call(finding: Finding) -> str:
    """The operator with the arguments that matter: ``clamp(min=0, max=6)``, ``clamp.Tensor``."""
    _, _, form = finding.overload.partition(".")
    name = f"{finding.operator}.{form}" if form else finding.operator
    given = ", ".join(f"{name}={value}" for name, value in finding.arguments.items())
    return f"{name}({given})" if given else name


def element(weights: Measured | None) -> str:
    """Weights as people write them: ``1/2, 1/2``, and entries of one argument in brackets: ``[1/2, 0, 1/2]``."""
    if weights is None:
        return "none"
    return ", ".join(entries(each) if isinstance(each, tuple) else number(each) for each in weights.values())


def entries(numbers: tuple[float, ...]) -> str:
    """The entries of an argument; of many only those that are not 0."""
    if len(numbers) <= SHOWN:
        return f"[{', '.join(number(each) for each in numbers)}]"
    shown = [number(each) for each in numbers if each != 0]
    return f"[{', '.join(shown)} and {len(numbers) - len(shown)} zeros]" if len(shown) <= SHOWN else "[...]"


def number(weight: float) -> str:
    """A number, as a fraction where it is a simple one."""
    if math.isfinite(weight):
        fraction = Fraction(weight).limit_denominator(4)
        if abs(float(fraction) - weight) < 1e-9:
            return str(fraction)
    return f"{weight:.5g}"


def both_modes(reverse: Measured | None, forward: Measured | None) -> str:
    """What is returned, in forward mode too where that is another."""
    one, other = element(reverse), element(forward)
    return one if one == other else f"{one} (forward {other})"


def verdict(finding: Finding) -> str:
    """Whether torch keeps its documented rule, and what that asks for where it does not."""
    if finding.documented is None:
        return "none"
    return "kept" if finding.keeps_rule else f"broken: {element(finding.documented)}"


def wrapped(text: str, start: str = "", width: int = WIDTH) -> list[str]:
    """Lines of a text, the first after a start, the others below its end."""
    indent = " " * len(start)
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False) or [start]


def columns(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Rows in columns as wide as they need to be, some to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    to_right = set(right)
    made = [
        [each.rjust(width) if place in to_right else each.ljust(width) for place, (each, width) in enumerate(pairs)]
        for pairs in (zip(row, widths, strict=True) for row in rows)
    ]
    return ["  ".join(row).rstrip() for row in made]
