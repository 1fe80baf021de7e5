"""What is wrong with a gradient, as data, and the report of it that an error shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

MOST = 8  # entries of a vector that are shown
LABEL = 10


@dataclass(frozen=True)
class Complaint:
    """What is wrong.

    Attributes:
        what: in a sentence.
        facts: what it follows from, by name: the point, the gradients, the set.
        lines: of the program that are responsible, in words.
    """

    what: str
    facts: tuple[tuple[str, str], ...] = ()
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows = [(name, line) for name, text in self.facts for name, line in _named(name, text.split("\n"))]
        rows += _named("because of", list(self.lines)) if self.lines else []
        return "\n".join([self.what, *(f"  {name:<{LABEL}}  {line}".rstrip() for name, line in rows)])


def _named(name: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(name if number == 0 else "", line) for number, line in enumerate(lines)]


def number(value: float | Tensor) -> str:
    return f"{float(value) + 0.0:.6g}"  # no -0


def vector(values: Tensor, entries: Sequence[int] | None = None) -> str:
    """``(1, 0.5)``, or some of the entries of it."""
    chosen = list(range(len(values))) if entries is None else list(entries)
    shown = ", ".join(number(values[each]) for each in chosen[:MOST])
    return f"({shown}{', ...' if len(chosen) > MOST else ''})"
