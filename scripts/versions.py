"""The published cases on every supported torch, each in an environment of its own, as one table."""

from __future__ import annotations

import json
import sys

from environments import ROOT, VERSIONS, run
from rich.console import Console
from rich.table import Table

MODES = 4
results = {version: json.loads(run(version, ROOT / "tests" / "cases.py"))["results"] for version in VERSIONS}

table = Table(
    title="Published cases: modes that give the wanted gradient (reverse, torch.func.grad, forward, torch.compile)"
)
for header in ("case", "convention", "wanted", *(f"torch {version}" for version in VERSIONS)):
    table.add_column(header)
for rows in zip(*results.values(), strict=True):
    first = rows[0]
    counts = [f"{len(row['right'])} of {MODES}" for row in rows]
    table.add_row(first["case"], first["convention"], str(first["wanted"])[1:-1], *counts)
Console(width=200).print(table)

wrong = sum(MODES - len(row["right"]) for rows in results.values() for row in rows)
print(f"{sum(len(rows) for rows in results.values()) * MODES} measured, {wrong} wrong")
sys.exit(wrong > 0)
