"""`find_kinks`: a search for inputs at which a function is not differentiable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from subgrad.audit.call_site import Site
from subgrad.audit.result import DECADES, Row
from subgrad.testing.inputs import Inputs
from subgrad.testing.lines import Bracket, Line
from subgrad.testing.needs_hypothesis import hypothesis_for
from subgrad.testing.program import Program, undisturbed
from subgrad.testing.responsible import recorded

STEP = {torch.float64: 1e-6, torch.float32: 1e-2}  # of one-sided quotients
GRID = 256
LEAST = 1e-3  # jump of the slope, relative to the slopes


@dataclass(frozen=True)
class FoundKink:
    """A place where a function has no derivative.

    Attributes:
        point: the inputs there, as a tuple of arguments.
        direction: along which the slope jumps: a tensor for each tensor of the box, one entry 1 and the others 0.
        entry: of the inputs, which moves along it; ``output``: the entry of the result whose slope jumps most.
        left, right: its slopes on both sides, from its values.
        rows: the operators that meet a kink there and not beside it, with their lines: those that are responsible.
        is_exact: whether the point lies on the kink; otherwise it lies between two floating-point numbers.
    """

    point: tuple[Any, ...]
    direction: tuple[Tensor, ...]
    entry: str
    output: str
    left: float
    right: float
    rows: tuple[Row, ...]
    is_exact: bool

    @property
    def jump(self) -> float:
        return self.right - self.left

    @property
    def operator(self) -> str | None:
        return self.rows[0].operator if self.rows else None

    @property
    def site(self) -> Site | None:
        """The line that calls it."""
        return self.rows[0].site if self.rows else None

    def __str__(self) -> str:
        row = self.rows[0] if self.rows else None
        place = "" if row is None else f"{row.site}: {row.operator}{f' at {row.kink}' if self.is_exact else ''}: "
        return f"{place}{self.output} has slopes {self.left:.6g} and {self.right:.6g} in {self.entry}"


def find_kinks(
    f: Any, box: Any, *, most: int = 8, examples: int = 100, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[FoundKink, ...]:
    """Search for inputs at which a function is not differentiable, to the floating-point number.

    >>> from subgrad.testing import find_kinks
    >>> for kink in find_kinks(lambda x: x.clamp(-1, 6), (-10, 10)):
    ...     print(kink.point[0].item(), kink.left, kink.right, kink.operator)
    -1.0 0.0 1.0 clamp
    6.0 1.0 0.0 clamp

    Points are drawn by hypothesis, and lines through them along one entry are halved where the slope jumps. The point
    of each kink is shrunk: its other entries are as simple as they can be. Values confirm the jump. Each line of the
    program is reported once for each kink of its operator; what no row of the table answers for, once for each place.

    Args:
        f: a function of tensors that returns one, or a pytree that has some.
        box: the bounds of its argument, ``(low, high)``: numbers, or tensors of its shape; for several arguments a list
            of such pairs.
        most: how many to find at most.
        examples: how many points are drawn before the search for another one is given up.
        dtype: of arguments whose bounds are numbers.
        seed: the same seed finds the same kinks, in the same order.

    Raises:
        ModuleNotFoundError: without hypothesis, which ``pip install hypothesis`` brings.
    """
    hypothesis = hypothesis_for("subgrad.testing.find_kinks")
    lows, highs = _bounds(box, dtype)
    given = Inputs(tuple((low + high) / 2 for low, high in zip(lows, highs, strict=True)))
    with undisturbed(given):
        search = _Search(
            Program(f, given, seed), *(torch.cat([each.flatten().double() for each in ends]) for ends in (lows, highs))
        )
        places = hypothesis.strategies.tuples(
            _points(hypothesis, search), hypothesis.strategies.integers(0, given.size - 1)
        )
        settings = hypothesis.settings(
            max_examples=examples, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        while len(search.found) < most:
            try:
                start, entry = hypothesis.find(
                    places, lambda drawn: bool(search.new(*drawn)), settings=settings, random=Random(seed)
                )
            except hypothesis.errors.NoSuchExample:
                break
            search.keep(start, entry)
    return tuple(search.found.values())[:most]


def _bounds(box: Any, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    is_one = (
        isinstance(box, tuple | list) and len(box) == 2 and all(isinstance(each, Tensor | int | float) for each in box)
    )
    if not isinstance(box, tuple | list) or not box:
        raise ValueError(f"box={box!r}: give (low, high) for each argument, numbers or tensors.")
    pairs = [box] if is_one else list(box)
    lows, highs = [], []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"box={box!r}: give (low, high) for each argument, numbers or tensors.")
        low, high = (each if isinstance(each, Tensor) else torch.tensor(float(each), dtype=dtype) for each in pair)
        low, high = torch.broadcast_tensors(low, high)
        if not bool((low < high).all()) or not bool(low.isfinite().all() & high.isfinite().all()):
            raise ValueError("box: each bound below must be finite, and less than the one above.")
        lows.append(low.clone())
        highs.append(high.clone())
    return lows, highs


def _points(hypothesis: Any, search: _Search) -> Any:
    """Vectors in the box, zeros and whole numbers first."""
    st = hypothesis.strategies
    entries = []
    for low, high in zip(search.low.tolist(), search.high.tolist(), strict=True):
        plain = [each for each in (0.0, 1.0, -1.0, 2.0, -2.0, 0.5) if low <= each <= high] or [low]
        entries.append(st.sampled_from(plain) | st.integers(1, GRID).map(partial(_between, low, high)))
    return st.tuples(*entries)


def _between(low: float, high: float, part: int) -> float:
    """A number of a grid: tiny ones would find where squares vanish, and not where functions bend."""
    return low + (high - low) * part / GRID


class _Search:
    """What has been found in a box."""

    def __init__(self, program: Program, low: Tensor, high: Tensor):
        self.program, self.low, self.high = program, low, high
        self.found: dict[Any, FoundKink] = {}
        self.known: dict[Any, list[tuple[Any, FoundKink]]] = {}

    def new(self, start: Sequence[float], entry: int) -> list[tuple[Any, FoundKink]]:
        """The kinks on a line that have not been found yet, each with what tells it from others."""
        key = (tuple(each for k, each in enumerate(start) if k != entry), entry)
        if key not in self.known:
            vector = self.program.inputs.rounded(torch.tensor(start, dtype=torch.float64))
            line = Line(self.program, vector, entry, self.program.weights)
            others = (0.0, 1.0, -1.0, *start)
            brackets = line.kinks(float(self.low[entry]), float(self.high[entry]), others)
            kinks = [self.kink(line, each) for each in brackets]
            self.known[key] = [each for each in kinks if each is not None]
        return [each for each in self.known[key] if each[0] not in self.found]

    def keep(self, start: Sequence[float], entry: int) -> None:
        for key, kink in self.new(start, entry):
            self.found.setdefault(key, kink)

    def kink(self, line: Line, bracket: Bracket) -> tuple[Any, FoundKink] | None:
        """What there is between two neighbouring numbers, if values bend there."""
        numbers = [bracket.below, bracket.above, *self.plain(line, bracket)]
        rows, number, is_exact = self.on(line, numbers)
        bent = self.bent(line, number)
        if bent is None:
            return None
        inputs, vector = self.program.inputs, line.at(number)
        ahead = torch.zeros_like(vector)
        ahead[bracket.entry] = 1.0
        output, left, right = bent
        point = tuple(each.detach() for each in inputs.at(vector).tensors)
        direction = tuple(each.clone() for each in inputs.shaped(ahead))
        kink = FoundKink(
            point, direction, inputs.name(bracket.entry), self.program.name(output), left, right, tuple(rows), is_exact
        )
        return (rows[0].key if rows else (bracket.entry, f"{number:.6g}")), kink

    def plain(self, line: Line, bracket: Bracket) -> list[float]:
        """Zero, and the numbers of other entries, where they are as near as makes no difference to the values."""
        near = 64 * torch.finfo(line.dtype).eps * max(1.0, abs(bracket.above))
        return [each for each in dict.fromkeys([0.0, *line.start.tolist()]) if abs(each - bracket.above) <= near]

    def on(self, line: Line, numbers: Sequence[float]) -> tuple[list[Row], float, bool]:
        """What is met at one of some numbers and not beside them; of several numbers the one that meets most."""
        beside = numbers[0] + 1e-3 * max(1.0, abs(numbers[0]))
        there = {row.key: row for row in self.met(line, beside)}
        best: tuple[list[Row], float, bool] = [], min(numbers[:2], key=lambda each: len(repr(each))), False
        for number in numbers:
            here = self.met(line, number)
            hit = [row for row in here if row.total.hits > (there[row.key].total.hits if row.key in there else 0)]
            if len(hit) > len(best[0]) or (hit and not best[2]):
                best = hit, number, True
        if best[0]:
            return best
        near = [
            row
            for row in self.met(line, best[1])
            if self.nearest(row) > (self.nearest(there[row.key]) if row.key in there else 0)
        ]
        return near, best[1], False

    def met(self, line: Line, number: float) -> list[Row]:
        return list(recorded(self.program.at(line.at(number)))[1].rows())

    def nearest(self, row: Row) -> int:
        """How many entries lie beside a kink of it by no more than rounding."""
        rounding = 64 * torch.finfo(self.program.inputs.dtype).eps
        within = sum(10.0**power <= max(rounding, 1e-12) for power in DECADES)
        return sum(row.distances[:within])

    def bent(self, line: Line, number: float) -> tuple[int, float, float] | None:
        """The entry of the result whose slope jumps most, and its slopes; None where the values do not bend."""
        dtype = self.program.inputs.dtype_of(line.entry)
        step = STEP.get(dtype, 1e-1) * max(1.0, abs(number))
        ends = [line.rounded(number + sign * step) for sign in (-1, 1)]
        values = [self.program.value_at(line.at(each)) for each in (ends[0], number, ends[1])]
        left, right = (values[1] - values[0]) / (number - ends[0]), (values[2] - values[1]) / (ends[1] - number)
        output = int((right - left).abs().argmax())
        slopes = float(left[output]), float(right[output])
        rows = [self.program.run(line.at(each)).row(output)[line.entry] for each in ends]
        if not abs(slopes[1] - slopes[0]) > LEAST * max(map(abs, slopes)):
            return None
        agree = all(
            abs(float(row) - slope) <= LEAST * (1 + abs(slope)) for row, slope in zip(rows, slopes, strict=True)
        )
        left, right = map(float, rows) if agree else slopes
        return output, left + 0.0, right + 0.0  # no -0
