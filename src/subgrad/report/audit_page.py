"""An audit as a page of its own: nothing is fetched, and all that comes from the program is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from subgrad.audit.effects import Effect
from subgrad.audit.result import Audit, Row
from subgrad.report import audit_charts as charts
from subgrad.report import nonfinite
from subgrad.report.audit_text import NUMBERS, cells, columns, counted, noted, shown
from subgrad.report.document import asset, document


def page(audit: Audit) -> str:
    """The whole page."""
    script = asset("page.js") if audit.every else ""  # which sorts the table of kinks
    parts = (
        _overview(audit),
        _section("Gradients that became infinite or NaN", nonfinite.section(audit)),
        _section("Kinks by call site", _table(audit), "One line for each kink of each call site in each module."),
        _section("Hits over time", charts.over_time(audit), "Of each recorded step, by module."),
        _section(
            "Distances to the nearest kink",
            charts.distances(audit),
            "Of a sample of the entries that are not on it, from corners and ties between tensors.",
        ),
        _section("Gradients", _gradients(audit)),
        _section("Source lines", _sources(audit.rows), "Those with hits."),
    )
    return document("subgrad audit", "\n".join(filter(None, parts)), asset("page.css"), script)


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


def _overview(audit: Audit) -> str:
    met = [row for row in audit.rows if row.total.hits]
    cards = {
        "hits": f"{audit.hits:,}",
        "kinks hit": f"{len(met):,} of {len(audit.rows):,}",
        "lines": f"{len({(row.site.file, row.site.line) for row in met}):,}",
        "steps recorded": f"{len(audit.recorded):,} of {audit.steps:,}",
        "ranks": f"{audit.ranks:,}",
    }
    if not audit.every:
        cards = {"steps": f"{audit.steps:,}", "ranks": cards["ranks"]}
    if audit.is_watched:
        cards["gradients not finite"] = f"{len(audit.nonfinite):,}"
    shown = "".join(f'<div class="card"><b>{value}</b>{name}</div>' for name, value in cards.items())
    verdicts = "".join(f'<p class="verdict">{escape(each)}</p>' for each in audit.verdicts)
    notes = "".join(f'<p class="soft">{escape(each)}.</p>' for each in noted(audit))
    recorded = {0: "no step", 1: "every step"}.get(audit.every, f"one step of {audit.every:,}")
    under = f"torch {escape(audit.torch)}, convention {escape(audit.convention)}, {recorded} recorded"
    return f'<h1>subgrad audit</h1><p class="soft">{under}</p><div class="cards">{shown}</div>{verdicts}{notes}'


def _table(audit: Audit) -> str:
    if not audit.every:
        return ""
    names = columns(audit)
    head = "".join(_header(name) for name in names)
    lines = "".join(_line(row, names) for row in audit.rows)
    return (
        '<p><label>Filter <input id="filter" type="search" placeholder="file, module, operator, ..."></label> '
        '<span id="counted" class="soft"></span></p><div class="scroll">'
        f'<table id="kinks"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _header(name: str) -> str:
    kind = ' class="number"' if name in NUMBERS else ""
    return f'<th scope="col"{kind}><button type="button">{name}</button></th>'


def _line(row: Row, names: Sequence[str]) -> str:
    text, total = cells(row), row.total
    numbers = {"share": row.share, **{name: getattr(total, name) for name in NUMBERS if name != "share"}}
    made = []
    for name in names:
        if name in NUMBERS:
            made.append(f'<td class="number" data-value="{numbers[name]}">{text[name]}</td>')
        elif name == "line":
            made.append(f'<td title="{escape(row.site.file)}"><code>{escape(text[name])}</code></td>')
        else:
            made.append(f"<td>{escape(text[name])}</td>")
    return f"<tr>{''.join(made)}</tr>"


def _gradients(audit: Audit) -> str:
    effects = audit.effects
    if not effects:
        return ""
    heat = charts.heat(effects)
    lines = "".join(_causes(effect) for effect in effects)
    words, numbers = ("step", "from", "to", "line", "operator"), ("parameters", "entries", "signs")
    head = "".join(f"<th>{name}</th>" for name in words)
    head += "".join(f'<th class="number">{name}</th>' for name in numbers)
    if not any(effect.differing for effect in effects):
        where = " in what was seen" if audit.is_partial else ""
        return f"<p>No gradient differs{where} between the conventions that were compared.</p>"
    caption = '<p class="soft">Relative difference of each parameter\'s gradient, by step.</p>' if heat else ""
    table = (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
        if lines
        else ""
    )
    return f'{caption}<div class="scroll">{heat}</div>{table}'


def _causes(effect: Effect) -> str:
    where = (escape(each) for each in (str(effect.step), effect.before, effect.after))
    start = "".join(f"<td>{each}</td>" for each in where)
    return "".join(
        f"<tr>{start}<td><code>{escape(str(cause.site))}</code></td><td>{escape(cause.operator)}</td>"
        f'<td class="number">{cause.parameters:,}</td><td class="number">{cause.differ:,}</td>'
        f'<td class="number">{cause.flips:,}</td></tr>'
        for cause in effect.causes
    )


def _sources(rows: Iterable[Row]) -> str:
    hits: dict[str, dict[tuple[int, str], int]] = {}
    for row in rows:
        if row.total.hits and row.site.file:
            lines = hits.setdefault(row.site.file, {})
            place = (row.site.line, row.site.source)
            lines[place] = lines.get(place, 0) + row.total.hits
    most = max((count for lines in hits.values() for count in lines.values()), default=1)
    made = []
    for file, lines in sorted(hits.items()):
        listed = "".join(
            f'<tr><td class="number">{line}</td><td><code>{escape(source)}</code></td><td class="number">{count:,}</td>'
            f'<td><span class="meter" style="width:{max(2, round(120 * count / most))}px"></span></td></tr>'
            for (line, source), count in sorted(lines.items())
        )
        made.append(
            f'<h3><code>{escape(file)}</code></h3><div class="scroll"><table class="source">{listed}</table></div>'
        )
    return "".join(made)
