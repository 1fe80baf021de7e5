"""What all scans saw together, as the page docs/scan.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from scan.classify import KINDS
from scan.reasons import REASONS, UNPROBED
from scan.scanning import Finding, Scan

TITLE = "# The completeness scan"
MEANING = """\
Every differentiable entry of PyTorch's own operator database is probed at structured places (0, the parameters of the
sample, ties between inputs, equal and repeated entries and rows, integers and half-integers, cell borders, singular
matrices) with one-sided differences in float64. A kink or a jump found there counts as covered only if a row of the
table, for an operator that the entry calls, is hit at that very point and not beside it; a jump, only by a row that
says jump. At an *edge* the domain ends or the function is infinite: there is nothing on one of the sides. It is a
*pole* where the value is infinite and finite beside it, or slopes grow without end towards it; a row must say so."""


OPTIONS = {"full": "", "quick": " --quick"}


def summary(scans: Sequence[Scan], effort: str) -> str:
    """The page: totals, entries with kinks, and everything that is not covered."""
    parts = [
        TITLE,
        MEANING,
        f"Printed by `scripts/scan.py{OPTIONS[effort]}`, torch {torch.__version__}.",
        _totals(scans),
    ]
    parts += [
        "## Entries with kinks, jumps or poles",
        _table(("entry", "found", "for example at", "covered by"), _found(scans)),
    ]
    parts += ["## Not covered, with reasons", _table(("entry", "found", "for example at", "reason"), _reasons(scans))]
    parts += ["## Not probed", _table(("entry", "reason"), _unprobed(scans))]
    held = ", ".join(f"`{scan.entry}`" for scan in scans if scan.held)
    edges = ", ".join(f"`{scan.entry}`" for scan in scans if scan.counts.get("edge"))
    parts += [
        "## Labels",
        f"Inputs that are labels, any move of which is a jump, were held fixed in: {held or 'none'}.",
    ]
    parts += ["## Edges", f"Entries whose domain ends, or that are infinite, at a place probed: {edges or 'none'}."]
    return "\n\n".join(parts) + "\n"


def _totals(scans: Sequence[Scan]) -> str:
    places = Counter[str]()
    for scan in scans:
        places.update(scan.counts)
    findings = [finding for scan in scans for finding in scan.findings]
    covered = sum(bool(finding.covered_by) for finding in findings)
    explained = sum(finding.entry in REASONS for finding in findings if not finding.covered_by)
    found = [scan for scan in scans if scan.findings]
    rows = [
        ("entries scanned", len(scans)),
        ("entries probed", sum(scan.probed > 0 for scan in scans)),
        ("places probed", sum(scan.probed for scan in scans)),
        *((f"places: {kind}", places[kind]) for kind in KINDS),
        ("entries with a kink, a jump or a pole", len(found)),
        ("of these, covered by the table", sum(not scan.uncovered for scan in found)),
        ("of these, with a reason", sum(bool(scan.uncovered) and scan.entry in REASONS for scan in found)),
        ("kinks, jumps and poles found", len(findings)),
        ("of these, covered by a row hit there", covered),
        ("of these, with a reason", explained),
        ("**found but unlisted**", f"**{len(findings) - covered - explained}**"),
    ]
    return _table(("", "count"), [(label, str(count)) for label, count in rows])


def _found(scans: Sequence[Scan]) -> list[tuple[str, ...]]:
    rows = []
    for scan in scans:
        covered = [finding for finding in scan.findings if finding.covered_by]
        if covered:
            said = dict.fromkeys(f"`{row.op}`: `{row.place}`" for finding in covered for row in finding.covered_by)
            rows.append((f"`{scan.entry}`", _kinds(covered), covered[0].place, "<br>".join(_short(list(said)))))
    return rows


def _reasons(scans: Sequence[Scan]) -> list[tuple[str, ...]]:
    missing = "**none: this is a fault of the table**"
    return [
        (f"`{scan.entry}`", _kinds(scan.uncovered), scan.uncovered[0].place, REASONS.get(scan.entry, missing))
        for scan in scans
        if scan.uncovered
    ]


def _unprobed(scans: Sequence[Scan]) -> list[tuple[str, ...]]:
    return [(f"`{scan.entry}`", UNPROBED.get(scan.entry, scan.failure)) for scan in scans if not scan.probed]


def _kinds(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict.kind for finding in findings)
    return ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items())


def _short(lines: list[str], most: int = 4) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None."
    lines = [headers, ["---"] * len(headers), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
