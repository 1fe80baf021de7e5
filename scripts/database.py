"""Every sample of every covered entry of PyTorch's operator database, without us and then under three conventions.

    python scripts/database.py                  # everything, on all cores
    python scripts/database.py clamp abs        # these entries
    python scripts/database.py --samples 2      # gradient checks of the smallest samples only, as the tests do

What passes without us must pass: forward values to the bit, torch's gradient checks in every mode. Exits with an error
if anything does not.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "database"))

from entries import CHECKED, Case, all_cases, covered, database, smallest
from regressions import CHECKS, CONVENTIONS, NAMES, Baseline, Outcome, Verdict, baseline, outcomes

import subgrad
from subgrad.kinks import KINKS

PIECE = 60  # cases at a time, so that one large entry does not keep one core busy alone


@dataclass(frozen=True)
class Piece:
    """Some cases of one entry, and which of them to differentiate; with their baselines, once there are any."""

    name: str
    start: int
    checked: frozenset[str]
    baselines: tuple[Baseline, ...] = ()

    def cases(self) -> list[Case]:
        return _all_cases(self.name)[self.start : self.start + PIECE]


@lru_cache(maxsize=1)  # a process gets the pieces of an entry one after the other
def _all_cases(name: str) -> list[Case]:
    return all_cases(name)


@dataclass
class Findings:
    """What came out, counted; one by one where there is something to look at."""

    counts: Counter[tuple[str, str, Verdict]] = field(default_factory=Counter)
    notable: list[Outcome] = field(default_factory=list)

    def add(self, found: Iterable[Outcome]) -> None:
        for each in found:
            self.counts[each.check, each.convention, each.verdict] += 1
            if each.verdict in (Verdict.REGRESSION, Verdict.ON_A_KINK):
                self.notable.append(each)

    def total(self, *verdicts: Verdict) -> int:
        return sum(count for (_, _, verdict), count in self.counts.items() if verdict in verdicts)


def begin() -> None:
    """In every process: one thread, and none of torch's warnings about its own entries."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def without_us(piece: Piece) -> tuple[Piece, tuple[Baseline, ...]]:
    return piece, tuple(baseline(case, CHECKS if str(case) in piece.checked else ()) for case in piece.cases())


def under_conventions(piece: Piece) -> tuple[Piece, list[Outcome]]:
    pairs = list(zip(piece.cases(), piece.baselines, strict=True))
    assert all(str(case) == native.case for case, native in pairs)
    return piece, [
        each for case, native in pairs for convention in CONVENTIONS for each in outcomes(case, native, convention)
    ]


def run(work: Callable[[Piece], Any], pieces: list[Piece], jobs: int, title: str, console: Console) -> Iterator[Any]:
    """The work on all pieces by processes that do nothing else: those of the baselines never see a convention."""
    spawn = multiprocessing.get_context("spawn")
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(jobs, mp_context=spawn, initializer=begin) as pool,
    ):
        for done in progress.track(
            as_completed([pool.submit(work, piece) for piece in pieces]), total=len(pieces), description=title
        ):
            yield done.result()


def table_of(counts: Counter[tuple[str, str, Verdict]]) -> Table:
    table = Table(title="Checks by outcome", title_justify="left")
    table.add_column("check")
    table.add_column(Verdict.NOT_BY_TORCH.value, justify="right")
    for convention in CONVENTIONS:
        for verdict in (Verdict.PASSED, Verdict.ON_A_KINK, Verdict.REGRESSION):
            table.add_column(f"{convention}\n{verdict.value}", justify="right")
    for check in NAMES:
        row = [sum(counts[check, each, Verdict.NOT_BY_TORCH] for each in ("torch", *CONVENTIONS))]
        for convention in CONVENTIONS:
            row += [counts[check, convention, v] for v in (Verdict.PASSED, Verdict.ON_A_KINK, Verdict.REGRESSION)]
        table.add_row(check, *(f"{number:,}" for number in row))
    return table


def pieces_of(name: str, samples: int | None) -> list[Piece]:
    every = _all_cases(name)
    chosen = every if samples is None else smallest(every, samples)
    checked = frozenset(str(case) for case in chosen if case.dtype is CHECKED)
    return [Piece(name, start, checked) for start in range(0, len(every), PIECE)]


def grouped(found: Iterable[Outcome], verdict: Verdict) -> Iterator[str]:
    """One line for each reason: how often, in which check, and where first."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for each in found:
        if each.verdict is verdict:
            groups.setdefault((each.check, each.reason), []).append(each)
    for (check, reason), members in sorted(groups.items()):
        first = min(members, key=str)
        entries = sorted({each.case.partition(" ")[0] for each in members})
        yield (
            f"{verdict.value}, {len(members):,} x {check}, first {first.case} under {first.convention}: {reason}\n"
            f"    in {', '.join(entries)}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="*", help="names in the database; all covered ones if none are given")
    parser.add_argument("--samples", type=int, help="gradient checks of so many samples per way to meet the table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    asked = parser.parse_args()
    begin()
    console, started = Console(width=160, highlight=False), time.monotonic()

    with console.status("which entries call what the table has rows for ..."):
        names = [name for name in covered() if not asked.entries or name in asked.entries]
        pieces = [piece for name in names for piece in pieces_of(name, asked.samples)]
    unmet = [op for op in KINKS.overloads if not any(op in met.overloads for met in covered().values())]
    console.print(
        f"torch {torch.__version__}, subgrad {subgrad.__version__}: {len(database())} differentiable entries of the "
        f"database, {len(covered())} covered, {len(names)} run"
    )
    console.print(f"{len(KINKS.overloads)} overloads in the table; no entry calls: {', '.join(unmet) or 'none'}")
    for name, met in covered().items():
        for place in sorted(met.unanswered):
            console.print(f"the table has no answer in {name} for {place}", markup=False, soft_wrap=True)

    findings, ready = Findings(), []
    for piece, baselines in run(without_us, pieces, asked.jobs, "without us", console):
        ready.append(replace(piece, baselines=baselines))
        findings.add(each for native in baselines for each in native.outcomes())
    ready.sort(key=lambda piece: (piece.name, piece.start))
    for _, found in run(under_conventions, ready, asked.jobs, "under conventions", console):
        findings.add(found)

    console.print(table_of(findings.counts))
    for verdict in (Verdict.ON_A_KINK, Verdict.REGRESSION):
        for line in grouped(findings.notable, verdict):
            console.print(line, markup=False, soft_wrap=True)
    natives = [native for piece in ready for native in piece.baselines]
    hit = sum(bool(native.hits) for native in natives)
    regressions = findings.total(Verdict.REGRESSION)
    console.print(
        f"{len(natives):,} cases (samples, as functions and in place, in three types), "
        f"{len(differentiated(natives)):,} differentiated, {hit:,} of these on a kink; "
        f"{findings.total(*Verdict):,} outcomes in {(time.monotonic() - started) / 60:.1f} minutes: "
        f"{findings.total(Verdict.PASSED):,} passed, {findings.total(Verdict.ON_A_KINK):,} on a kink, "
        f"{findings.total(Verdict.NOT_BY_TORCH):,} that torch does not pass, {regressions:,} regressions"
    )
    return int(bool(regressions))


def differentiated(natives: Iterable[Baseline]) -> list[Baseline]:
    return [native for native in natives if native.passing or native.failing]


if __name__ == "__main__":
    sys.exit(main())
