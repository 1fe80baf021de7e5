"""An audit as a page of its own: nothing is fetched, and all that comes from the program is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from subgrad.audit.result import Audit, Row
from subgrad.report import audit_charts as charts
from subgrad.report import audit_verdict, nonfinite
from subgrad.report.audit_text import NUMBERS, cells, columns, counted, noted, shown
from subgrad.report.document import asset, document
from subgrad.report.html import breakable


def page(audit: Audit) -> str:
    """The whole page."""
    script = asset("page.js") if audit.every else ""  # which sorts the table of kinks
    parts = (
        _head(audit),
        audit_verdict.verdicts(audit),
        _overview(audit),
        _section("Gradients that became infinite or NaN", nonfinite.section(audit)),
        _section("Lines responsible", audit_verdict.responsible(audit), "Marked in their source, with what they do."),
        _section("Gradients", charts.heat(audit.effects), "How far each parameter's gradient changes, by step."),
        _section("Kinks by call site", _table(audit), "One line for each kink of each call site in each module."),
        _section("Hits over time", charts.over_time(audit), _steps(audit)),
        _section(
            "Distances to the nearest kink",
            charts.distances(audit),
            "Of a sample of the entries that are not on it, from corners and ties between tensors.",
        ),
        _section("Source lines", _sources(audit), "Those with hits; marked are those on which gradients depend."),
    )
    return document("subgrad audit", "\n".join(filter(None, parts)), asset("page.css") + asset("audit.css"), script)


def fragment(audit: Audit) -> str:
    """For notebooks: the table and the sentences."""
    names = columns(audit)
    head = "".join(f"<th>{name}</th>" for name in names)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(cells(row)[name])}</td>' for name in names)}</tr>" for row in shown(audit)
    )
    kinks = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>" if audit.every else ""
    said = "".join(f"<p>{escape(line)}</p>" for line in counted(audit).splitlines())
    return f"<div>{nonfinite.section(audit)}{said}{kinks}</div>"


def _section(title: str, content: str, said: str = "") -> str:
    return f'<section><h2>{title}</h2><p class="soft">{said}</p>{content}</section>' if content else ""


def _head(audit: Audit) -> str:
    recorded = {0: "no step recorded", 1: "every step recorded"}.get(
        audit.every, f"one step of {audit.every:,} recorded"
    )
    under = f"torch {escape(audit.torch)}, convention {escape(audit.convention)}, {recorded}"
    return f'<header><h1>subgrad audit</h1><p class="soft">{under}</p></header>'


def _overview(audit: Audit) -> str:
    met = [row for row in audit.rows if row.total.hits]
    cards = {
        "hits": f"{audit.hits:,}",
        "kinks hit": f"{len(met):,} of {len(audit.rows):,}",
        "lines with hits": f"{len({(row.site.file, row.site.line) for row in met}):,}",
        "steps recorded": f"{len(audit.recorded):,} of {audit.steps:,}",
        "ranks": f"{audit.ranks:,}",
    }
    if not audit.every:
        cards = {"steps": f"{audit.steps:,}", "ranks": cards["ranks"]}
    if audit.ranks == 1:
        del cards["ranks"]
    if audit.is_watched:
        cards["gradients not finite"] = f"{len(audit.nonfinite):,}"
    shown = "".join(f'<div class="card"><b>{value}</b>{name}</div>' for name, value in cards.items())
    notes = "".join(f'<p class="soft">{breakable(each)}.</p>' for each in noted(audit))
    return f'<div class="cards">{shown}</div>{notes}'


def _steps(audit: Audit) -> str:
    if len(audit.recorded) == 1:
        return f"Of step {audit.recorded[0]:,}, the one that was recorded, by module."
    return "Of each recorded step, by module."


def _table(audit: Audit) -> str:
    if not audit.every:
        return ""
    names = columns(audit)
    head = "".join(_header(name) for name in names)
    lines = "".join(_line(row, names) for row in audit.rows)
    return (
        '<p><label>Filter <input id="filter" type="search" placeholder="file, module, operator, ..."></label> '
        '<span id="counted" class="soft"></span></p>'
        f'<table id="kinks" class="wide"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    )


def _header(name: str) -> str:
    kind = ' class="number"' if name in NUMBERS else ""
    return f'<th scope="col"{kind}><button type="button">{name}</button></th>'


def _line(row: Row, names: Sequence[str]) -> str:
    text, total = cells(row), row.total
    numbers = {"share": row.share, **{name: getattr(total, name) for name in NUMBERS if name != "share"}}
    made = []
    for name in names:
        label = f' data-label="{name}"'
        if name in NUMBERS:
            made.append(f'<td class="number"{label} data-value="{numbers[name]}">{text[name]}</td>')
        elif name == "line":
            made.append(f'<td{label} title="{escape(row.site.file)}"><code>{breakable(text[name])}</code></td>')
        else:
            made.append(f"<td{label}>{breakable(text[name])}</td>")
    return f"<tr>{''.join(made)}</tr>"


def _sources(audit: Audit) -> str:
    hits: dict[str, dict[tuple[int, str], int]] = {}
    for row in audit.rows:
        if row.total.hits and row.site.file:
            lines = hits.setdefault(row.site.file, {})
            place = (row.site.line, row.site.source)
            lines[place] = lines.get(place, 0) + row.total.hits
    most = max((count for lines in hits.values() for count in lines.values()), default=1)
    blamed = {(each.largest.site.file, each.largest.site.line) for each in audit_verdict.guilty(audit.effects)}
    made = []
    for file, lines in sorted(hits.items()):
        listed = "".join(
            f'<tr{_blame(blamed, file, line)}><td class="number">{line}</td><td><code>{escape(source)}</code></td>'
            f'<td class="number">{count:,}</td><td class="measured">'
            f'<span class="meter" style="width:{max(2, round(100 * count / most))}%"></span></td></tr>'
            for (line, source), count in sorted(lines.items())
        )
        made.append(f'<h3><code>{breakable(file)}</code></h3><table class="source">{listed}</table>')
    return "".join(made)


def _blame(blamed: Iterable[tuple[str, int]], file: str, line: int) -> str:
    return ' class="blamed"' if (file, line) in blamed else ""
