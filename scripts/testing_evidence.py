"""Hold `subgrad.testing.gradcheck` against functions with known derivatives, right and wrong. Write parts of the page.

    python scripts/testing_evidence.py               # 1,000 of each kind, 200 seeds: parts of docs/testing.md
    python scripts/testing_evidence.py --kept FILE   # goes on where an earlier run with the same file ended
    python scripts/testing_evidence.py --count 50    # fewer, to look at; the page is left alone
    python scripts/testing_evidence.py --classic     # what both say of classic bugs: that part of docs/testing.md alone
    python scripts/testing_evidence.py --only wrong/17

Exits with an error if something right is refused, or something wrong passes, and names it.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # ahead of this folder

from sections import write_section  # noqa: E402
from testing.planted import function_with, kinked, wrong  # noqa: E402
from testing.side_by_side import side_by_side  # noqa: E402
from testing.smooth import smooth  # noqa: E402
from testing.table_kinds import spots  # noqa: E402

import subgrad  # noqa: E402
from subgrad.kinks import KINKS  # noqa: E402
from subgrad.testing import GradcheckError, gradcheck  # noqa: E402

PAGE = ROOT / "docs" / "testing.md"
COUNT, SEEDS, FUNCTIONS = 1000, 200, 20
CONVENTIONS = ("min-norm", "mean", "left", "right")


@dataclass(frozen=True)
class Trial:
    """One function at one point, and whether its derivative there is right."""

    name: str
    kind: str
    is_right: bool
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    seed: int
    convention: str = "torch"

    def said(self) -> str | None:
        """What is wrong with it, if anything."""
        try:
            with subgrad.use(self.convention):
                gradcheck(self.function, self.inputs, seed=self.seed)
        except GradcheckError as error:
            return str(error)
        return None

    def passes_torchs(self) -> bool:
        with subgrad.use(self.convention):
            return torch.autograd.gradcheck(self.function, self.inputs, raise_exception=False)


def of_smooth(number: int, seed: int | None = None) -> Trial:
    made = smooth(Random(f"smooth/{number}"))
    return Trial(f"smooth/{number}", "smooth", True, made, made.inputs, number if seed is None else seed)


def of_kinked(number: int, seed: int | None = None) -> Trial:
    generator = Random(f"kinked/{number}")
    made = kinked(generator)
    function, x = function_with(made.program, made.element(generator)), made.program.tensor().requires_grad_()
    return Trial(f"kinked/{number}", "kinked", True, function, (x,), number if seed is None else seed)


def of_wrong(number: int) -> Trial:
    made, how, element = wrong(Random(f"wrong/{number}"))
    x = made.program.tensor().requires_grad_()
    return Trial(f"wrong/{number}", how, False, function_with(made.program, element), (x,), number)


@cache
def table() -> tuple[Trial, ...]:
    """Every kink of the table with elements that conventions take, and with elements that are none."""
    found = []
    for number, spot in enumerate(spots()):
        # At kinks of many entries at once the other conventions leave torch's own, which may be none.
        for each in CONVENTIONS if spot.place.kink.op in KINKS.entrywise else CONVENTIONS[:1]:
            found.append(
                Trial(f"{spot.name} under {each}", "conventions", True, spot.function, spot.given, number, each)
            )
        for how, element in spot.wrong(torch.Generator().manual_seed(number)):
            found.append(Trial(f"{spot.name}: {how}", how, False, spot.planted(element), spot.given, number))
    return tuple(found)


def trial(name: str) -> Trial:
    """By its name: ``smooth/3``, ``kinked/3``, with a seed of its own ``kinked/3/17``, ``wrong/3``, ``table/3``."""
    kind, *numbers = name.split("/")
    if kind == "table":
        return table()[int(numbers[0])]
    return {"smooth": of_smooth, "kinked": of_kinked, "wrong": of_wrong}[kind](*map(int, numbers))


def names(count: int, seeds: int) -> dict[str, list[str]]:
    """Of all trials, by the row of the page that they belong to."""
    found = {kind: [f"{kind}/{number}" for number in range(count)] for kind in ("smooth", "kinked", "wrong")}
    for row, is_right in (("right in the table", True), ("wrong in the table", False)):
        found[row] = [f"table/{number}" for number, each in enumerate(table()) if each.is_right == is_right]
    pairs = [(number, seed) for number in range(FUNCTIONS // 2) for seed in range(seeds)]
    found["seeds"] = [f"{kind}/{number}/{seed}" for number, seed in pairs for kind in ("smooth", "kinked")]
    return found


@dataclass(frozen=True)
class Judged:
    """What was said of a trial.

    Attributes:
        name: by which it can be made again; title: in words.
        said: by ours, if it is refused; passes_torchs: by torch's own, if that was asked.
    """

    name: str
    title: str
    kind: str
    is_right: bool
    said: str | None
    passes_torchs: bool | None


def judged(name: str) -> Judged:
    one, asks_torch = trial(name), name.count("/") == 1
    return Judged(name, one.name, one.kind, one.is_right, one.said(), one.passes_torchs() if asks_torch else None)


@dataclass
class Findings:
    """Of all trials in one table: how many, by kind, and what went wrong."""

    total: Counter[str] = field(default_factory=Counter)
    misjudged: Counter[str] = field(default_factory=Counter)
    by_torch: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def add(self, one: Judged) -> None:
        self.total[one.kind] += 1
        self.by_torch[one.kind] += one.passes_torchs is not None and one.passes_torchs != one.is_right
        if (one.said is None) != one.is_right:
            self.misjudged[one.kind] += 1
            self.lines.append(f"{one.name}, {one.title} {'is refused: ' + one.said if one.said else 'passes'}")

    def row(self, name: str, asks_torch: bool = True) -> str:
        total, ours, theirs = (sum(each.values()) for each in (self.total, self.misjudged, self.by_torch))
        return f"| {name} | {total:,} | {ours} | {f'{theirs:,}' if asks_torch else ''} |"


def examined(count: int, seeds: int, kept: Path | None, workers: int) -> dict[str, Findings]:
    rows = names(count, seeds)
    lines = kept.read_text().splitlines() if kept and kept.exists() else []
    known = {one.name: one for one in (Judged(**json.loads(line)) for line in lines)}
    left = [name for row in rows.values() for name in row if name not in known]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Forked, so that the table is made once.
    with Progress(*columns) as progress, get_context("fork").Pool(workers, _quiet) as pool:
        for one in progress.track(pool.imap_unordered(judged, left, 4), total=len(left), description="judged"):
            known[one.name] = one
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
    found = {row: Findings() for row in rows}
    for row, of_row in rows.items():
        for name in of_row:
            found[row].add(known[name])
    return found


def _quiet() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def page(found: dict[str, Findings], seeds: int) -> str:
    kinds = found["wrong"]
    return "\n".join(
        [
            f"Written by `scripts/testing_evidence.py` (torch {torch.__version__.partition('+')[0]}): how many were",
            "checked, and how many of them were misjudged by `subgrad.testing.gradcheck`, and by torch's own.",
            "",
            "| | checked | misjudged | by torch's |",
            "|---|---:|---:|---:|",
            found["smooth"].row("random smooth functions, their gradient"),
            found["kinked"].row("random functions at kinks, a random element of their set"),
            found["wrong"].row("the same with a gradient outside of the set"),
            found["right in the table"].row("kinks of the table, the elements of four conventions"),
            found["wrong in the table"].row("kinks of the table, gradients outside of the set"),
            found["seeds"].row(f"{FUNCTIONS} of the first two kinds, with {seeds} seeds each", False),
            "",
            "| what was planted | checked | missed | by torch's |",
            "|---|---:|---:|---:|",
            *(
                f"| {HOW[kind]} | {number:,} | {kinds.misjudged[kind]} | {kinds.by_torch[kind]:,} |"
                for kind, number in kinds.total.most_common()
            ),
        ]
    )


HOW = {
    "both": "several pieces added up: (1, 1) at a tie",
    "beyond": "past the end of the set",
    "opposite": "the wrong sign",
    "nothing": "zero, where that is not in the set",
    "undefined": "nan in one entry",
    "one_entry": "one entry wrong",
    "scaled": "a factor of 0.5, 1.1 or 2",
    "mixed_up": "entries in each other's place",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help=f"functions of each kind (default: {COUNT:,})")
    parser.add_argument("--seeds", type=int, help=f"for each of {FUNCTIONS} functions (default: a fifth of --count)")
    parser.add_argument("--only", help="one of them, as smooth/3, kinked/5, wrong/17 or table/41: what is said of it")
    parser.add_argument("--kept", type=Path, help="a file that keeps what was found, for a run that goes on with it")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--classic", action="store_true", help="write what both say of classic bugs, and nothing else")
    asked = parser.parse_args()
    _quiet()
    if asked.only:
        print(trial(asked.only).said() or "passes")
        return 0
    if asked.classic:
        write_section(PAGE, "classic", side_by_side())
        return 0
    seeds = asked.count // 5 if asked.seeds is None else asked.seeds
    found = examined(asked.count, seeds, asked.kept, asked.workers)
    random = page(found, seeds)
    if asked.count >= COUNT and seeds >= SEEDS:
        write_section(PAGE, "classic", side_by_side())
        write_section(PAGE, "random", random)
    misjudged = [line for each in found.values() for line in each.lines]
    print(random, *misjudged, f"{len(misjudged)} misjudged", sep="\n\n")
    return int(bool(misjudged))


if __name__ == "__main__":
    sys.exit(main())
