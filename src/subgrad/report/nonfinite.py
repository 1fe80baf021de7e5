"""Gradients that became infinite or NaN, as a table, and as a part of the report."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from subgrad.audit.effects import plural
from subgrad.audit.nonfinite.result import Line, Nonfinite
from subgrad.audit.nonfinite.words import sentences
from subgrad.audit.result import Audit
from subgrad.report.html import breakable

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("step", "steps", "became", "line", "operator", "entry", "values", "cotangent", "mask", "NaN at")
NUMBERS = ("step", "steps")


def cells(found: Nonfinite) -> dict[str, str]:
    """What the table says of a finding, by column."""
    line = found.guilty
    return {
        "step": f"{found.step:,}",
        "steps": f"{found.steps:,}",
        "became": found.became,
        "line": _site(line),
        "operator": line.operator if line else found.kind,
        "entry": ", ".join(map(str, line.entry)) if line else "",
        "values": ", ".join(f"{name} = {value}" for name, value in line.inputs) if line else "",
        "cotangent": found.cotangent if line is found.line else "",
        "mask": _site(found.mask),
        "NaN at": _site(found.nan_line),
    }


def _site(line: Line | None) -> str:
    return str(line.site) if line is not None and line.site.file else ""


def table(audit: Audit) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(title="Gradients that became infinite or NaN", title_justify="left", header_style="bold")
    for column in COLUMNS:
        made.add_column(column, justify="right" if column in NUMBERS else "left", overflow="fold")
    for found in audit.nonfinite:
        made.add_row(*(Text(each) for each in cells(found).values()))
    return made


def said(audit: Audit) -> list[str]:
    """What it comes to, if gradients were watched for it."""
    if not audit.is_watched:
        return []
    if not audit.nonfinite:
        return [f"No gradient became infinite or NaN in {plural(audit.steps, 'step')}."]
    return [str(each) for each in audit.nonfinite]


def section(audit: Audit) -> str:
    """The table, and for each finding its sentences and what to write instead."""
    if not audit.nonfinite:
        return "".join(f"<p>{escape(each)}</p>" for each in said(audit))
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    rows = "".join(f"<tr>{''.join(_cell(*each) for each in cells(found).items())}</tr>" for found in audit.nonfinite)
    listed = "".join(map(_finding, audit.nonfinite))
    return f'{listed}<table class="wide"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _cell(name: str, text: str) -> str:
    return f'<td data-label="{name}">{breakable(text)}</td>'


def _finding(found: Nonfinite) -> str:
    line = found.guilty
    source = f"<pre>{escape(line.site.source)}</pre>" if line is not None and line.site.source else ""
    told = "".join(f"<p>{breakable(each)}</p>" for each in sentences(found))
    advice = "".join(
        f'<p>{escape(each.words)}:</p><pre class="copy">{escape(each.code)}</pre>' for each in found.advice
    )
    return f'<div class="verdict differs"><div>{source}{told}{advice}</div></div>'
