"""Hold the gradient of programs whose slopes are not defined in places against their values. Write a part of a page.

    python scripts/never_nan.py                    # 2,000 programs: a part of docs/clarke-evidence.md
    python scripts/never_nan.py --programs 200     # fewer, to look at; the page is left alone
    python scripts/never_nan.py --only 175         # one, with what is said of it
    python scripts/never_nan.py --seed 7           # others

Exits with an error if one is nan, wrong or dies. Those are kept in build/never_nan.json, by seed and number.
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

from clarke.undefined.guards import GUARDS  # noqa: E402
from clarke.undefined.judge import Outcome, Truth, Verdict, examine  # noqa: E402
from clarke.undefined.programs import Program, numbered  # noqa: E402
from clarke.undefined.removable import REMOVABLE  # noqa: E402
from clarke.undefined.rows import WIDE  # noqa: E402
from clarke.undefined.singular import SINGULAR  # noqa: E402
from sections import write_section  # noqa: E402

PAGE = ROOT / "docs" / "clarke-evidence.md"
KEPT = ROOT / "build" / "never_nan.json"
PROGRAMS, BATCH = 2_000, 25


@dataclass
class Findings:
    """Of all programs: what came out, by what the truth is and by the way that was asked; and of what they are made."""

    outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    truths: Counter[tuple[Truth, Outcome]] = field(default_factory=Counter)
    causes: Counter[tuple[str, Outcome, str]] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    undefined: int = 0  # torch's own gradient is not finite
    kept: list[dict] = field(default_factory=list)  # all that are not right

    def add(self, seed: int, number: int, program: Program, asked: dict[str, Verdict]) -> None:
        self.parts.update({name for step in program.steps for name in step.names})
        self.truths[asked["grad"].truth, asked["grad"].outcome] += 1
        self.undefined += not bool(torch.func.grad(program.function)(program.tensor()).isfinite().all())
        for way, verdict in asked.items():
            self.outcomes[way, verdict.outcome] += 1
            if verdict.outcome in (Outcome.RIGHT, Outcome.NO_GRADIENT):
                continue
            self.causes[way, verdict.outcome, verdict.cause] += 1
            where = {"seed": seed, "number": number, "way": way, "outcome": verdict.outcome.name}
            self.kept.append({**where, "cause": verdict.cause, "said": verdict.said, "program": str(program)})

    def merge(self, other: Findings) -> None:
        for name in ("outcomes", "truths", "causes", "parts"):
            getattr(self, name).update(getattr(other, name))
        self.undefined += other.undefined
        self.kept += other.kept

    @property
    def total(self) -> int:
        return sum(self.truths.values())

    @property
    def misses(self) -> int:
        return sum(count for (_, each), count in self.outcomes.items() if each.is_miss)

    @property
    def share(self) -> float:
        """How many of the programs that have a gradient are refused, in per cent."""
        having = [(each, count) for (truth, each), count in self.truths.items() if truth is not Truth.NONE]
        refused = sum(count for each, count in having if each in (Outcome.REFUSED, Outcome.REFUSED_KINK))
        return 100 * refused / max(1, sum(count for _, count in having))


def begin() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def batch(seed: int, numbers: range) -> Findings:
    """The programs with these numbers: each has a generator of its own."""
    findings = Findings()
    for number in numbers:
        program = numbered(seed, number)
        findings.add(seed, number, program, examine(program, number))
    return findings


def examined(seed: int, programs: int, jobs: int) -> Findings:
    found = Findings()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    starts = range(0, programs, BATCH)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=begin) as pool:
        futures = [pool.submit(batch, seed, range(start, min(start + BATCH, programs))) for start in starts]
        with Progress(*columns) as progress:
            for done in progress.track(as_completed(futures), total=len(futures), description=f"batches of {BATCH}"):
                found.merge(done.result())
    return found


def page(found: Findings, seed: int) -> str:
    ways = list(dict.fromkeys(way for way, _ in found.outcomes))
    shown = [each for each in Outcome if each is not Outcome.NO_GRADIENT]
    lines = [
        "## Programs whose slopes are infinite or not defined in places",
        "",
        f"Written by `scripts/never_nan.py` (seed {seed}, torch {torch.__version__.partition('+')[0]}).",
        "Programs of 1 to 3 parts, each after a linear map that lands on its singular points:",
        f"{len(SINGULAR)} functions under {len(GUARDS)} guards, that leave out what is singular, bound it, saturate",
        f"or cancel; {len(REMOVABLE)} removable singularities; {len(WIDE)} of rows, broadcasting, matrix products and",
        "masked softmaxes; beside smooth operators and kinks. The truth is the program in 320 digits, 1e-30 and 1e-36",
        "along a dozen rays and more: its slopes, and its gradient there by central differences.",
        "",
        f"Torch's own gradient is not finite in {found.undefined:,} of {found.total:,}. Refused, of those that have a",
        f"gradient or a kink: {found.share:.1f} %.",
        "",
        "| the program, by its values | " + " | ".join(each.value for each in Outcome) + " |",
        "|---" * (len(Outcome) + 1) + "|",
        *(_row(truth.value, [found.truths[truth, each] for each in Outcome]) for truth in Truth),
        "",
        "Where `grad` is right, the other ways to ask:",
        "",
        "| | " + " | ".join(each.value for each in shown) + " |",
        "|---" * (len(shown) + 1) + "|",
        *(_row(way, [found.outcomes[way, each] for each in shown]) for way in ways if way != "grad"),
        "",
        "| why | programs |",
        "|---|---:|",
        *(_cause(way, each, cause, count) for (way, each, cause), count in found.causes.most_common()),
        "",
        "| part | programs |",
        "|---|---:|",
        *(f"| {name} | {count:,} |" for name, count in sorted(found.parts.items())),
    ]
    return "\n".join(lines)


def _row(name: str, counts: list[int]) -> str:
    return f"| {name} | " + " | ".join(f"{each:,}" for each in counts) + " |"


def _cause(way: str, outcome: Outcome, cause: str, count: int) -> str:
    words = cause.replace("|", "\\|")
    return f"| {way}, {outcome.name.lower().replace('_', ' ')}: {words} | {count:,} |"


def report(found: Findings) -> None:
    """One small example of each kind that is not right."""
    shortest: dict[tuple[str, str, str], dict] = {}
    for each in sorted(found.kept, key=lambda each: len(each["program"])):
        shortest.setdefault((each["outcome"], each["way"], each["cause"]), each)
    for each in sorted(shortest.values(), key=lambda each: each["outcome"]):
        where = f"--seed {each['seed']} --only {each['number']}"
        print(f"\n{each['outcome']}, {each['way']}, {where}: {each['said'][:300]}\n{each['program']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=PROGRAMS, help=f"how many (default: {PROGRAMS:,})")
    parser.add_argument("--seed", type=int, default=0, help="of the programs")
    parser.add_argument("--only", type=int, help="the number of one program")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes (default: one a core)")
    asked = parser.parse_args()
    if asked.only is not None:
        begin()
        program = numbered(asked.seed, asked.only)
        verdicts = examine(program, asked.only)
        print(program, *(f"{way}: {each.outcome.value}. {each.said}" for way, each in verdicts.items()), sep="\n")
        return int(any(each.outcome.is_miss for each in verdicts.values()))
    found = examined(asked.seed, asked.programs, asked.jobs)
    report(found)
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(found.kept, indent=1))
    if asked.programs >= PROGRAMS:
        write_section(PAGE, "never_nan", page(found, asked.seed))
    else:
        print(page(found, asked.seed).split("\n| part |")[0])
    print(f"{found.total:,} programs, {found.misses} misses, {found.share:.1f} % refused: {KEPT}")
    return int(bool(found.misses))


if __name__ == "__main__":
    sys.exit(main())
