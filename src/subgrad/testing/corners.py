"""Kinks of a function near its inputs: where two functions that agree elsewhere may differ."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from subgrad.testing.lines import Bracket, Line
from subgrad.testing.program import Program

MOST = 32  # entries that are moved


def corners_near(program: Program, near: float) -> Iterator[Tensor]:
    """Points at kinks, to the floating-point number, not further away in any entry than asked for.

    First those on lines along one entry. Then those of a walk, which goes on from the nearest kink along one entry to
    the nearest along the next, since some kinks lie where several entries are at a place. Last, where entries are zeros
    or equal.
    """
    size = program.inputs.size
    order = torch.randperm(size, generator=program.generator)[:MOST].tolist()
    walked = program.here.clone()
    for entry in order:
        found = list(_on_line(program, program.here, entry, near))
        for bracket, line in found:
            yield from (line.at(each) for each in (bracket.below, bracket.above))
        if not torch.equal(walked, program.here):
            found = list(_on_line(program, walked, entry, near))
        if found:
            bracket, line = min(found, key=lambda each: abs(each[0].above - float(walked[entry])))
            walked = line.at(simplest(bracket))
            yield walked
    yield from _plain(program, near)


def simplest(bracket: Bracket) -> float:
    """Of two neighbouring numbers the one that is written with fewer digits."""
    return min(bracket.below, bracket.above, key=lambda each: len(repr(each)))


def _on_line(program: Program, start: Tensor, entry: int, near: float) -> Iterator[tuple[Bracket, Line]]:
    here = float(program.here[entry])
    line = Line(program, start, entry, program.weights)
    if not program.here[entry].isfinite():
        return
    low, high = line.rounded(here - near), line.rounded(here + near)
    others = [each for each in start.tolist() if each == each]
    yield from ((bracket, line) for bracket in line.kinks(low, high, (0.0, -1.0, 1.0, here, *others[:MOST])))


def _plain(program: Program, near: float) -> Iterator[Tensor]:
    parts = program.inputs.split(program.here)
    for number, part in enumerate(parts):
        if not len(part) or not bool(part.isfinite().all()):
            continue
        for plain in (torch.zeros_like(part), part[:1].expand_as(part)):
            if float((part - plain).abs().amax()) <= near:
                yield torch.cat([plain if k == number else each for k, each in enumerate(parts)])
