"""The published cases on every supported torch, each in an environment of its own, as one table.

And whether versions that share a convention return the same: `torch-2.11` is another name of `torch-2.13`.
"""

from __future__ import annotations

import json
import sys

from environments import ROOT, VERSIONS, run
from rich.console import Console
from rich.table import Table

from subgrad.conventions import SAME_VERSIONS

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

differing = 0
for name, same in SAME_VERSIONS.items():
    version = next(each for each in VERSIONS if each.startswith(name.removeprefix("torch-")))
    real = json.loads(run(version, ROOT / "tests" / "recording.py"))["rows"]
    recorded = json.loads((ROOT / "tests" / "recorded" / f"{same}.json").read_text())["rows"]
    others = [op for op in recorded if real[op] != recorded[op]]
    # Up to 2.12 torch has no derivative of it everywhere.
    unexplained = [op for op in others if not (op == "aminmax" and name == "torch-2.11")]
    differing += len(unexplained)
    counts = f"{len(recorded) - len(others)} of {len(recorded)}"
    print(f"torch {version} returns what {same} does at {counts} overloads, to the bit")
sys.exit(wrong + differing > 0)
