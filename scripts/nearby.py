"""Hold the gradient of random programs of all operators against their own values nearby. Write a part of the page.

    python scripts/nearby.py                     # 20,000 programs: a part of docs/clarke-evidence.md
    python scripts/nearby.py --programs 500      # fewer, to look at; the page is left alone
    python scripts/nearby.py --only 175          # one, with what is said of it
    python scripts/nearby.py --seed 7            # others

Exits with an error if one is wrong or dies. Those are kept in build/nearby.json, by seed and number, with their code.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # ahead of this folder, in which a file is called as the package is

from clarke.mixed.coverage import ELSEWHERE, counted, wanted  # noqa: E402
from clarke.mixed.judge import Outcome, Verdict, examine  # noqa: E402
from clarke.mixed.programs import DEEPEST, OPERATIONS, SHALLOWEST, Program, numbered  # noqa: E402
from sections import write_section  # noqa: E402

PAGE = ROOT / "docs" / "clarke-evidence.md"
KEPT = ROOT / "build" / "nearby.json"
PROGRAMS, BATCH = 20_000, 50


@dataclass
class Findings:
    """Of all programs: what came out and why, by their operations and depths."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    causes: Counter[tuple[Outcome, str]] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    depths: Counter[int] = field(default_factory=Counter)
    run: Counter[str] = field(default_factory=Counter)
    decided: Counter[str] = field(default_factory=Counter)
    kinked: int = 0  # right ones that met a kink
    kept: list[dict] = field(default_factory=list)  # all that are not right

    def add(self, seed: int, number: int, program: Program, verdict: Verdict) -> None:
        self.outcomes[verdict.outcome] += 1
        self.operations.update({step.name for step in program.steps})
        self.depths[len(program.steps)] += 1
        if verdict.outcome is Outcome.RIGHT:
            self.kinked += verdict.kinks > 0
            return
        self.causes[verdict.outcome, verdict.cause] += 1
        where = {"seed": seed, "number": number, "outcome": verdict.outcome.name, "cause": verdict.cause}
        self.kept.append({**where, "said": verdict.said, "program": str(program)})

    def merge(self, other: Findings) -> None:
        for name in ("outcomes", "causes", "operations", "depths", "run", "decided"):
            getattr(self, name).update(getattr(other, name))
        self.kinked += other.kinked
        self.kept += other.kept

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())

    @property
    def misses(self) -> int:
        return sum(count for each, count in self.outcomes.items() if each.is_miss)


def begin() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def batch(seed: int, numbers: range) -> Findings:
    """The programs with these numbers: each has a generator of its own."""
    findings = Findings()
    with counted(findings.run, findings.decided):
        for number in numbers:
            program, direction = numbered(seed, number)
            findings.add(seed, number, program, examine(program, number, direction))
    return findings


def examined(seed: int, programs: int, jobs: int) -> Findings:
    """All of them, on all cores."""
    found = Findings()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    starts = range(0, programs, BATCH)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=begin) as pool:
        futures = [pool.submit(batch, seed, range(start, min(start + BATCH, programs))) for start in starts]
        with Progress(*columns) as progress:
            for done in progress.track(as_completed(futures), total=len(futures), description="batches of 50"):
                found.merge(done.result())
    return found


def page(found: Findings, seed: int) -> str:
    counted_in = found.total - found.outcomes[Outcome.NO_GRADIENT]
    share = 100 * found.outcomes[Outcome.REFUSED] / max(1, counted_in)
    unseen = [op for op in wanted() if not found.run[op]]
    lines = [
        "## Programs of all operators, held against their own values",
        "",
        f"Written by `scripts/nearby.py` (seed {seed}, torch {torch.__version__.partition('+')[0]}).",
        f"Programs of {SHALLOWEST} to {DEEPEST} operations out of {len(OPERATIONS)}: smooth functions, kinks,",
        "comparisons, loops, writes in place, jumps that cancel, spectra, layers, derivatives inside of the program.",
        "For each, the slope and the gradient, entry by entry, are held against difference quotients of the program's",
        "values along the direction and across it, extrapolated to step 0 in float64; where that is not sharp, the",
        "program is evaluated in 50 digits instead (mpmath). So is `jvp` in a direction of small integers. Whether a",
        "program has no gradient is decided by its values as well: quotients that grow without end along some ray.",
        "",
        "| random programs | |",
        "|---|---:|",
        f"| programs | {found.total:,} |",
        *(f"| {outcome.value} | {found.outcomes[outcome]:,} |" for outcome in Outcome),
        f"| refused, of those that have a gradient | {share:.1f} % |",
        f"| right ones that met a kink | {found.kinked:,} |",
        "",
        "| why | programs |",
        "|---|---:|",
        *(_cause(each, cause, count) for (each, cause), count in found.causes.most_common()),
        "",
        "| depth | " + " | ".join(map(str, range(SHALLOWEST, DEEPEST + 1))) + " |",
        "|---" * (DEEPEST - SHALLOWEST + 2) + "|",
        "| programs | " + " | ".join(f"{found.depths[each]:,}" for each in range(SHALLOWEST, DEEPEST + 1)) + " |",
        "",
        f"Rules: {len(wanted()) - len(unseen)} of {len(wanted())} were run"
        + (f"; never: {', '.join(unseen)}." if unseen else ".")
        + f" {len(ELSEWHERE)} more are for GPUs or always refused.",
        "",
        "| rule | run | met a kink |",
        "|---|---:|---:|",
        *(f"| {op} | {found.run[op]:,} | {found.decided[op]:,} |" for op in sorted(wanted())),
    ]
    return "\n".join(lines)


def _cause(outcome: Outcome, cause: str, count: int) -> str:
    words = cause.replace("|", "\\|")
    return f"| {outcome.name.lower().replace('_', ' ')}: {words} | {count:,} |"


def report(found: Findings) -> None:
    """One small example of each kind that is not right."""
    shortest: dict[tuple[str, str], dict] = {}
    for each in sorted(found.kept, key=lambda each: len(each["program"])):
        shortest.setdefault((each["outcome"], each["cause"]), each)
    for each in sorted(shortest.values(), key=lambda each: each["outcome"]):
        print(f"\n{each['outcome']}, --seed {each['seed']} --only {each['number']}: {each['said'][:300]}")
        print(each["program"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=PROGRAMS, help=f"how many (default: {PROGRAMS:,})")
    parser.add_argument("--seed", type=int, default=0, help="of the programs")
    parser.add_argument("--only", type=int, help="the number of one program")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes (default: one a core)")
    asked = parser.parse_args()
    if asked.only is not None:
        begin()
        program, direction = numbered(asked.seed, asked.only)
        verdict = examine(program, asked.only, direction)
        print(f"{program}\ndirection {direction}\n{verdict.outcome.value}: {verdict.said}")
        return int(verdict.outcome.is_miss)
    found = examined(asked.seed, asked.programs, asked.jobs)
    report(found)
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(found.kept, indent=1))
    if asked.programs >= PROGRAMS:
        write_section(PAGE, "nearby", page(found, asked.seed))
    else:
        print(page(found, asked.seed).split("\nRules:")[0])
    print(f"{found.total:,} programs, {found.misses} misses, {found.outcomes[Outcome.REFUSED]} refused: {KEPT}")
    return int(bool(found.misses))


if __name__ == "__main__":
    sys.exit(main())
