"""The scan of one entry: its samples, its places, what was found there, and what the table says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from unittest.mock import patch

import torch

from scan.classify import KINDS, Verdict, classify, directions
from scan.coverage import hit_here_only, trace
from scan.places import places
from scan.programs import Program, programs
from scan.reasons import REASONS, SELDOM, UNPROBED
from subgrad.kinks import KINKS, Kink, Table
from subgrad.kinks.sets import Jump, Pole


@dataclass(frozen=True)
class Effort:
    """How much is tried: samples of an entry, single coordinates of an input, and all places or the main ones."""

    samples: int
    coordinates: int
    thorough: bool


QUICK = Effort(samples=4, coordinates=0, thorough=False)
FULL = Effort(samples=24, coordinates=2, thorough=True)
NO_ROWS = Table(())


@dataclass(frozen=True)
class Finding:
    """A kink, a jump or a pole of an entry at a place, the overloads called, and the rows that are hit there."""

    entry: str
    sample: str
    place: str
    verdict: Verdict
    overloads: tuple[str, ...]
    rows: tuple[Kink, ...]

    @property
    def covered_by(self) -> tuple[Kink, ...]:
        """The rows that say what was found; only a row that says so answers for a jump, or for a pole."""
        sort = {"kink": object, "jump": Jump, "pole": Pole}[self.verdict.kind]
        return tuple(row for row in self.rows if isinstance(row.set, sort))

    def __str__(self) -> str:
        seen, hit = self.verdict, ", ".join(sorted({row.op for row in self.rows}))
        return (
            f"{self.entry}({self.sample}): a {seen.kind} at [{self.place}], not in the table. "
            f"Quotients {seen.left:.6g} and {seen.right:.6g} of output {seen.output} along {seen.direction}. "
            f"It calls {', '.join(self.overloads)}" + (f"; rows of {hit} are hit, and say less." if hit else ".")
        )


@dataclass(frozen=True)
class Scan:
    """What the scan of one entry saw: places by verdict, findings, and inputs held since any move of them jumps."""

    entry: str
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    held: int = 0
    failure: str = ""

    @property
    def probed(self) -> int:
        return sum(self.counts.values())

    @property
    def uncovered(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.covered_by)

    def complaints(self, reasons: Mapping[str, str] = REASONS) -> list[str]:
        """What is wrong with the table or the lists of reasons, as far as this entry shows; nothing if all is well."""
        if not self.probed:
            return [] if self.entry in UNPROBED else [f"{self.entry}: probed nowhere, without a reason: {self.failure}"]
        if self.entry in reasons and self.entry not in SELDOM and not self.uncovered:
            return [f"{self.entry}: all its kinks are covered; its reason is no longer needed"]
        return [] if self.entry in reasons else [str(finding) for finding in self.uncovered]


def scan(name: str, effort: Effort = QUICK, table: Table = KINKS) -> Scan:
    """Probe one entry of the database."""
    if name in UNPROBED:
        return Scan(name, {}, (), failure=UNPROBED[name])
    # Entries seed every sample, and some every call: torch.manual_seed takes a stack trace for each kind of device.
    with patch("torch.manual_seed", torch.default_generator.manual_seed):
        try:
            samples = programs(name, effort.samples)
        except Exception as error:  # the database says that it is differentiable, but not in float64 on a CPU
            return Scan(name, {}, (), failure=_said(error))
        return scan_programs(name, samples, effort, table)


def scan_programs(name: str, samples: list[Program], effort: Effort = QUICK, table: Table = KINKS) -> Scan:
    """Probe given programs at all their places; a place where the operator raises is no place of it."""
    counts = dict.fromkeys(KINDS, 0)
    findings: list[Finding] = []
    held, failure = 0, "no sample has a differentiable float64 input"
    labels = {label for program in samples for label in labels_of(program)}
    for program in samples:
        free = program.holding({k for k in range(len(program.moving)) if (k, len(program.moving)) in labels})
        try:
            numbers = trace(free, free.point, NO_ROWS).numbers  # an error of a row is not one of the operator
        except Exception as error:
            failure = _said(error)
            continue
        held += len(program.moving) - len(free.moving)
        for verdict, finding in _places(name, free, numbers, effort, table):
            counts[verdict.kind] += 1
            findings += [finding] if finding else []
    return Scan(name, counts, tuple(findings), held, "" if sum(counts.values()) else failure)


def _places(
    name: str, program: Program, numbers: tuple[float, ...], effort: Effort, table: Table
) -> Iterator[tuple[Verdict, Finding | None]]:
    for place, point in places(program, numbers, effort.thorough):
        try:
            verdict = classify(program, point, effort.coordinates, program.precision(point))
        except Exception:
            continue
        if verdict.kind in ("smooth", "edge"):
            yield verdict, None
            continue
        rows = hit_here_only(program, point, directions(point)["v"], table)
        overloads = trace(program, point, NO_ROWS).overloads
        yield verdict, Finding(name, program.description, place, verdict, overloads, rows)


def labels_of(program: Program) -> set[tuple[int, int]]:
    """Which of how many inputs are labels: compared with 1 or -1, so that any move of them is a jump."""
    count = len(program.moving)
    found = set()
    for index in range(count) if count > 1 else ():
        alone = program.holding(set(range(count)) - {index})
        try:
            found |= {(index, count)} if classify(alone, alone.point).kind == "jump" else set()
        except Exception:  # said where the program is scanned
            break
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:160]
