"""Hold the gradient of the whole program against exact sets: random programs, known cases. Write a part of the page.

    python scripts/clarke.py                     # 10,000 programs, every case with 100 seeds: docs/clarke-evidence.md
    python scripts/clarke.py --programs 500      # fewer, to look at; the page is left alone
    python scripts/clarke.py --seed 7            # others

Exits with an error if an element lies outside its set, and prints the smallest such programs.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # ahead of this folder, in which this file is called as the package is

from clarke.germs import TooManyPieces  # noqa: E402
from clarke.known import CASES  # noqa: E402
from clarke.random_programs import DEEPEST, Program, random_program  # noqa: E402
from clarke.verdicts import MOST, ROUNDING, Outcome, Verdict, examine  # noqa: E402
from sections import write_section  # noqa: E402

import subgrad  # noqa: E402

PAGE = ROOT / "docs" / "clarke-evidence.md"
PROGRAMS, SEEDS, BATCH = 10_000, 100, 100


@dataclass
class Findings:
    """Of all programs: what came out, by their operators, depths and pieces."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    depths: Counter[int] = field(default_factory=Counter)
    pieces: Counter[int] = field(default_factory=Counter)
    outside: Counter[bool] = field(default_factory=Counter)  # torch's own, by whether there is only one gradient
    left_out: int = 0
    misses: list[tuple[str, str]] = field(default_factory=list)

    def add(self, program: Program, verdict: Verdict) -> None:
        self.outcomes[verdict.outcome] += 1
        self.rows.update({step.row for step in program.steps})
        self.operations.update({step.operation for step in program.steps})
        self.depths[len(program.steps)] += 1
        self.pieces[verdict.pieces] += 1
        self.outside[verdict.pieces == 1] += verdict.torch_is_outside
        if verdict.outcome.is_miss:
            self.misses.append((str(program), f"{verdict.outcome.value}: {verdict.said}"))

    def merge(self, other: Findings) -> None:
        for name in ("outcomes", "rows", "operations", "depths", "pieces", "outside"):
            getattr(self, name).update(getattr(other, name))
        self.left_out += other.left_out
        self.misses += other.misses

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())


def begin() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def batch(seed: int, numbers: range) -> Findings:
    """The programs with these numbers: each has a generator of its own."""
    findings = Findings()
    for number in numbers:
        generator = Random(f"{seed}/{number}")
        program = random_program(generator.choice)
        direction = tuple(generator.randint(-2, 2) for _ in program.point)
        try:
            findings.add(program, examine(program, number, direction))
        except TooManyPieces:
            findings.left_out += 1
    return findings


def cases(name: str) -> tuple[str, str]:
    """What is wrong with one case, over all seeds: nothing, one hopes."""
    (case,) = (case for case in CASES if case.name == name)
    for seed in range(SEEDS):
        try:
            distance = case.distance(subgrad.grad(case.function, seed=seed)(case.tensor()))
        except Exception as error:
            return name, f"seed {seed}: {type(error).__name__}: {error}"
        if not distance < ROUNDING:
            return name, f"seed {seed}: an element at distance {distance:.3g} from the set"
    return name, ""


def tracked(pool: ProcessPoolExecutor, work: Any, arguments: Iterable[tuple], title: str) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        futures = [pool.submit(work, *each) for each in arguments]
        for done in progress.track(as_completed(futures), total=len(futures), description=title):
            yield done.result()


def page(found: Findings, known: dict[str, str], seed: int) -> str:
    missed = [name for name, trouble in known.items() if trouble]
    lines = [
        "## Piecewise polynomial programs, held against exact sets",
        "",
        f"Written by `scripts/clarke.py` (seed {seed}, torch {torch.__version__.partition('+')[0]}).",
        "The sets are computed in rational arithmetic from the programs alone: every cell of directions around the",
        "point, by linear programming, and its gradient there. An element counts where it is the gradient",
        f"of a piece (to {ROUNDING:g}); the value must be the program's to the bit, and `jvp` the exact one-sided",
        "derivative in a direction of small integers, in which tangents tie as well.",
        "",
        "| random programs | |",
        "|---|---:|",
        f"| programs, up to {DEEPEST} operations deep | {found.total:,} |",
        f"| left out, having more than {MOST} cells | {found.left_out:,} |",
        *(f"| {outcome.value} | {found.outcomes[outcome]:,} |" for outcome in Outcome),
        f"| **misses** | **{sum(count for each, count in found.outcomes.items() if each.is_miss):,}** |",
        f"| `torch.func.grad` outside the set, where there is only one gradient | {found.outside[True]:,} |",
        f"| `torch.func.grad` outside the set elsewhere | {found.outside[False]:,} |",
        "",
        f"Known cases: {len(known)}, {SEEDS} seeds each; missed: {', '.join(missed) or 'none'}.",
        "",
        "| depth | " + " | ".join(map(str, range(1, DEEPEST + 1))) + " |",
        "|---" * (DEEPEST + 1) + "|",
        "| programs | " + " | ".join(f"{found.depths[depth]:,}" for depth in range(1, DEEPEST + 1)) + " |",
        "",
        "| gradients around the point | programs |",
        "|---|---:|",
        *(
            f"| {low if low == high else f'{low} to {high}'} | {_between(found.pieces, low, high):,} |"
            for low, high in BINS
        ),
        "",
        "| written with | programs |",
        "|---|---:|",
        *(f"| {row} | {count:,} |" for row, count in sorted(found.rows.items()) if row != "none"),
        "",
        "| operation | programs |",
        "|---|---:|",
        *(f"| {name} | {count:,} |" for name, count in sorted(found.operations.items())),
    ]
    return "\n".join(lines) + "\n"


BINS = [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 64), (65, MOST)]


def _between(counts: Counter[int], low: int, high: int) -> int:
    return sum(count for number, count in counts.items() if low <= number <= high)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=PROGRAMS, help=f"how many (default: {PROGRAMS:,})")
    parser.add_argument("--seed", type=int, default=0, help="of the programs")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes (default: one a core)")
    asked = parser.parse_args()
    found, known = Findings(), {}
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn"), initializer=begin) as pool:
        starts = range(0, asked.programs, BATCH)
        batches = [(asked.seed, range(start, min(start + BATCH, asked.programs))) for start in starts]
        for findings in tracked(pool, batch, batches, "programs"):
            found.merge(findings)
        for name, trouble in tracked(pool, cases, ((case.name,) for case in CASES), "cases   "):
            known[name] = trouble
    shortest: dict[str, tuple[str, str]] = {}
    for program, said in sorted(found.misses, key=lambda miss: len(miss[0])):
        shortest.setdefault(said[:60], (program, said))  # one of each kind
    for program, said in shortest.values():
        print(f"{said}\n{program}\n")
    for name, trouble in known.items():
        if trouble:
            print(f"{name}, {trouble}")
    text = page(found, known, asked.seed)
    if asked.programs >= PROGRAMS:
        write_section(PAGE, "exact", text)
    print(
        text
        if asked.programs < PROGRAMS
        else f"{PAGE.relative_to(ROOT)}: {found.total:,} programs, {len(found.misses)} misses"
    )
    return int(bool(found.misses) or any(known.values()))


if __name__ == "__main__":
    sys.exit(main())
