"""What was measured, as tables for the terminal and as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from subgrad.bench.measure import RIVALS, Benchmark, Timing
from subgrad.bench.rows import SELECTIONS, Row, rows

if TYPE_CHECKING:
    from rich.table import Table

# In two lines, so that a table fits a terminal.
COLUMNS = (
    "forward\nms",
    "backward\nms",
    "both\nms",
    "torch /\nthis",
    "forward\nof limit",
    "backward\nof limit",
    "kept\nB/entry",
)
NONE = "-"
NOTE = (
    "torch / this: the time of both there over the time here, the median over turns (older records: of medians). "
    "of limit: what has to be moved, at the bandwidth of a copy of as many entries, over the time it took; "
    "tensors forward, and bits that were kept backward, too. "
    "kept: bytes held from forward to backward, the result aside."
)
# The bars of the picture, from the top, in colours that the colour-blind can tell apart.
BARS = {"torch": "#999999", "torch, compiled": "#56b4e9", "subgrad": "#d55e00"}


@dataclass(frozen=True)
class Line:
    """One contender at one row, with what follows from the other contenders and from the copy.

    Attributes:
        ratio: the time of torch over the time of this one, both eager or both compiled; none of torch itself.
        forward_share, backward_share: the least time that the copy's bandwidth allows, over the time it took.
    """

    timing: Timing
    ratio: float | None
    forward_share: float | None
    backward_share: float | None

    @property
    def kept(self) -> float:
        """Bytes an entry of one operand."""
        return self.timing.kept / self.timing.size

    def cells(self) -> tuple[str, ...]:
        """What the columns say."""
        return (
            *(milliseconds(each) for each in (self.timing.forward, self.timing.backward, self.timing.both)),
            ratio(self.ratio),
            share(self.forward_share),
            share(self.backward_share),
            f"{self.kept:.3g}",
        )


def groups(record: Benchmark) -> list[tuple[str, int]]:
    """Every dtype and size, in the order they were measured in."""
    return list(dict.fromkeys((each.dtype, each.size) for each in record.copies))


def lines(record: Benchmark, dtype: str, size: int) -> list[Line]:
    """One line for each row and contender of a dtype and size."""
    measured = [each for each in record.timings if (each.dtype, each.size) == (dtype, size)]
    copy = {(each.dtype, each.size): each.milliseconds for each in record.copies}[dtype, size]
    both = {(each.row, each.contender): each.both for each in measured}
    return [_line(each, copy, both.get((each.row, RIVALS.get(each.contender, NONE)))) for each in measured]


def _line(timing: Timing, copy: float, torchs: float | None) -> Line:
    forward, backward = _tensors_moved(timing.row)
    of_medians = None if torchs is None else torchs / timing.both  # all that older records have
    return Line(
        timing,
        timing.ratio or of_medians,
        _share(timing, forward, 0, copy, timing.forward),
        # Bits are a form that the least possible can take; whole tensors and masks of bytes are not.
        _share(timing, backward, timing.kept if timing.kept < timing.size else 0, copy, timing.backward),
    )


def _share(timing: Timing, tensors: int | None, bits: int, copy: float, took: float) -> float | None:
    if tensors is None:
        return None
    tensor = timing.size * getattr(torch, timing.dtype).itemsize
    return copy * (tensors * tensor + bits) / (2 * tensor) / took


def _tensors_moved(name: str) -> tuple[int | None, int | None]:
    """By forward and by backward; none for selections, which do not move whole tensors, and for rows of the past."""
    row = _known().get(name)
    if row is None or row in SELECTIONS:
        return None, None
    copied = 2 * row.in_place  # what is overwritten is copied first, in every contender
    return row.operands + 1 + copied, row.tensors_moved


def has_limit(name: str) -> bool:
    """Whether times of this row can be held against a copy."""
    return _tensors_moved(name) != (None, None)


@cache
def _known() -> dict[str, Row]:
    return {row.name: row for row in rows()}


def milliseconds(time: float) -> str:
    return f"{time:.4f}" if time < 1 else f"{time:.3f}"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def tables(record: Benchmark) -> list[Table]:
    """A table for each dtype and size, a line for each row and contender."""
    return [_table(dtype, size, lines(record, dtype, size)) for dtype, size in groups(record)]


def _table(dtype: str, size: int, measured: Sequence[Line]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=_title(dtype, size), title_justify="left", header_style="bold")
    table.add_column("row")
    table.add_column("contender")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    previous = None
    for line in measured:
        name = line.timing.row
        if previous not in (None, name):
            table.add_section()
        forward, backward, both, times, *rest = line.cells()
        table.add_row(
            Text("" if name == previous else name),
            Text(line.timing.contender),
            *(forward, backward, both, Text(times, style=_style(line.ratio)), *rest),
        )
        previous = name
    return table


def plain(record: Benchmark) -> list[str]:
    """The same in plain text."""
    return [f"{_title(dtype, size)}\n{_plain(lines(record, dtype, size))}" for dtype, size in groups(record)]


def _plain(measured: Sequence[Line]) -> str:
    names = [(line.timing.row, line.timing.contender) for line in measured]
    cells = [tuple(column.replace("\n", " ") for column in COLUMNS), *(line.cells() for line in measured)]
    left = [max(map(len, column)) for column in zip(("row", "contender"), *names, strict=True)]
    right = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join((*map(str.ljust, name, left), *map(str.rjust, numbers, right)))
        for name, numbers in zip((("row", "contender"), *names), cells, strict=True)
    )


def _title(dtype: str, size: int) -> str:
    return f"{size:,} entries, {dtype}"


def _style(value: float | None) -> str:
    if value is None or 0.95 <= value <= 1.05:  # too near to tell
        return ""
    return "green" if value > 1 else "red"


def summary(record: Benchmark) -> str:
    """Where it was measured, and how to read it."""
    return f"{record.machine}, torch {record.torch}, convention {record.convention}, {front(record)}.\n{NOTE}"


def front(record: Benchmark) -> str:
    """Whether the part in C++ was used."""
    return f"{'with' if record.front else 'without'} `subgrad build`"


def picture(record: Benchmark, form: str = "svg") -> bytes:
    """How near to the limit each backward comes at the largest size: bars for each row, a panel for each dtype.

    Args:
        form: ``"svg"`` or ``"png"``.

    Raises:
        ValueError: where no row of the record has a limit.
    """
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and looks for a screen

    dtypes = list(dict.fromkeys(dtype for dtype, _ in groups(record)))
    panels = {dtype: _panel(record, dtype) for dtype in dtypes}
    names = list(dict.fromkeys(name for shares in panels.values() for name, _ in shares))
    if not names:
        raise ValueError("there is nothing to draw: no row of this record has a limit.")
    figure = Figure(figsize=(1.5 + 4.5 * len(dtypes), 1.6 + 0.42 * len(names)), layout="constrained")
    figure.suptitle(f"Backward, of the limit of a copy\n{record.machine}, torch {record.torch}", fontsize=11)
    plots = figure.subplots(1, len(dtypes), sharey=True, squeeze=False)[0]
    for plot, (dtype, shares) in zip(plots, panels.items(), strict=True):
        _draw(plot, names, shares)
        plot.set_title(f"{dtype}, {_largest(record, dtype):,} entries", fontsize=10)
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    written = io.BytesIO()
    figure.savefig(written, format=form, dpi=150)
    return written.getvalue()


def _largest(record: Benchmark, dtype: str) -> int:
    return max(size for each, size in groups(record) if each == dtype)


def _panel(record: Benchmark, dtype: str) -> dict[tuple[str, str], float]:
    """The shares of backward, by row and contender."""
    found = lines(record, dtype, _largest(record, dtype))
    return {
        (line.timing.row, line.timing.contender): line.backward_share
        for line in found
        if line.backward_share is not None and line.timing.contender in BARS
    }


def _draw(plot, names: Sequence[str], shares: dict[tuple[str, str], float]) -> None:
    drawn = [contender for contender in BARS if any(contender == each for _, each in shares)]
    height = 0.8 / max(1, len(drawn))
    for place, contender in enumerate(drawn):
        offset = (place - (len(drawn) - 1) / 2) * height
        values = [100 * shares.get((name, contender), 0.0) for name in names]
        heights = [index + offset for index in range(len(names))]
        plot.barh(heights, values, height, label=contender, color=BARS[contender])
    plot.axvline(100, color="black", linewidth=0.8, linestyle="--")
    plot.set_yticks(range(len(names)), labels=names)
    plot.set_ylim(len(names) - 0.5, -0.5)  # the first row at the top
    plot.set_xlim(0, max(105.0, *(105 * each for each in shares.values())))
    plot.set_xlabel("% of the limit")
    plot.spines[["top", "right"]].set_visible(False)
