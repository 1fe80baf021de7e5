"""An audit as text: a table for the terminal, and what it comes to in sentences."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from subgrad.audit.effects import plural
from subgrad.audit.result import Audit, Row
from subgrad.report import nonfinite

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 30
COLUMNS = ("line", "function", "module", "operator", "kink", "calls", "entries", "hits", "share")
NUMBERS = ("calls", "entries", "hits", "near", "share")


def columns(audit: Audit) -> tuple[str, ...]:
    return (*COLUMNS[:-1], "near", COLUMNS[-1]) if audit.ulps else COLUMNS


def cells(row: Row) -> dict[str, str]:
    """What the table says of a row, by column."""
    total = row.total
    return {
        "line": str(row.site),
        "function": row.site.function,
        "module": row.module,
        "operator": row.operator,
        "kink": row.kink,
        "calls": f"{total.calls:,}",
        "entries": f"{total.entries:,}",
        "hits": f"{total.hits:,}",
        "near": f"{total.near:,}",
        "share": share(row.share),
    }


def share(part: float) -> str:
    return "0" if part == 0 else f"{part:.1%}" if part >= 1e-3 else f"{part:.1e}"


def shown(audit: Audit) -> list[Row]:
    """The rows with hits, the first of them; with near ones where those were asked for."""
    return [row for row in audit.rows if row.total.hits or row.total.near][:SHOWN]


def text(audit: Audit) -> str:
    """The table and the sentences; with rich if it is there."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return "\n".join((*_plain(audit), summary(audit)))
    width = shutil.get_terminal_size((160, 0)).columns
    console = Console(file=io.StringIO(), width=width, color_system=None)
    if shown(audit):
        console.print(table(audit))
    if audit.nonfinite:
        console.print(nonfinite.table(audit))
    console.print(summary(audit), highlight=False, markup=False, soft_wrap=True)
    return console.file.getvalue().rstrip()  # type: ignore[attr-defined]


def table(audit: Audit) -> Table:
    """The rows with the most hits."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title="Kinks that were hit", title_justify="left", header_style="bold")
    for column in columns(audit):
        made.add_column(column, justify="right" if column in NUMBERS else "left", overflow="fold")
    for row in shown(audit):
        found = cells(row)
        made.add_row(*(Text(found[column]) for column in columns(audit)))
    return made


def _plain(audit: Audit) -> list[str]:
    kinks = [list(columns(audit)), *([cells(row)[name] for name in columns(audit)] for row in shown(audit))]
    broken = [nonfinite.COLUMNS, *(list(nonfinite.cells(each).values()) for each in audit.nonfinite)]
    return [*(aligned(kinks) if audit.every else ()), *(aligned(broken) if audit.nonfinite else ())]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells, each column as wide as its widest cell."""
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def summary(audit: Audit) -> str:
    """What it comes to, a sentence a line."""
    return "\n".join(filter(None, (*nonfinite.said(audit), counted(audit))))


def counted(audit: Audit) -> str:
    """What that comes to which was counted and compared."""
    met = [row for row in audit.rows if row.total.hits]
    lines = {(row.site.file, row.site.line) for row in met}
    entries = sum(row.total.entries for row in audit.rows)
    said = []
    if audit.every:
        said.append(
            f"{audit.hits:,} hits among {entries:,} entries, in {plural(len(lines), 'line')}, "
            f"in {len(audit.recorded):,} recorded of {plural(audit.steps, 'step')}{_of_ranks(audit)}."
        )
    if len(met) > SHOWN:
        said.append(f"{len(met) - SHOWN} more kinks were hit: to_html() shows all.")
    return "\n".join((*said, *(f"{note}." for note in noted(audit)), *audit.verdicts))


def noted(audit: Audit) -> list[str]:
    """The notes, those first that say what was not seen."""
    others = [note for note in audit.notes if note not in audit.unseen]
    return [*(f"Not seen: {note}" for note in audit.unseen), *(f"Note: {note}" for note in others)]


def _of_ranks(audit: Audit) -> str:
    return f" on {audit.ranks} ranks" if audit.ranks > 1 else ""
