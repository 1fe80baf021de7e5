"""Hold a backend of any framework against values and gradients at kinks: this file and its data need Python alone.

Those who write a backend without torch copy ``conformance_pack.py`` and ``conformance_pack.json``; with torch there is
``subgrad.testing.conformance``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_suffix(".json")
CLOSE = 1e-5  # of values in single precision, away from kinks; an element on a kink differs by more, or not at all

# Nested lists of numbers, as tensors are written here.
Entries = Any


@dataclass(frozen=True)
class Kink:
    """A kink that a case meets.

    Attributes:
        place: where it lies.
        set: the set of generalised derivatives there, in words.
        between: numbers that every element lies between; None where many entries make up the kink together.
        hit: which entries of ``self`` lie on it; None likewise.
    """

    place: str
    set: str
    between: tuple[float, float] | None
    hit: Sequence[bool] | None


@dataclass(frozen=True)
class Case:
    """One call of one operator.

    Attributes:
        operator, overload: as torch's users and torch's dispatcher name it.
        arguments: by torch's names; those in ``tensors`` are nested lists in single precision, integers if they hold
            such, None if they are left out.
        differentiated: the arguments to return gradients of.
        cotangent: what to multiply the derivative with: as nested lists, shaped like the value.
    """

    operator: str
    overload: str
    arguments: Mapping[str, Any]
    tensors: tuple[str, ...]
    differentiated: tuple[str, ...]
    cotangent: Entries
    value: Entries
    gradients: Mapping[str, Mapping[str, Entries]]
    kinks: tuple[Kink, ...]

    def __str__(self) -> str:
        numbers = {name: value for name, value in self.arguments.items() if name not in self.tensors}
        given = (f"{name}={value!r}" for name, value in numbers.items() if value is not None)
        return f"{self.operator}({', '.join(given)})"


# The value of a case, and a gradient for each differentiated argument; what a backend lacks raises NotImplementedError.
Run = Callable[[Case], "tuple[Entries, Mapping[str, Entries]]"]


@dataclass(frozen=True)
class Failure:
    """One number that is not as it should be.

    Attributes:
        case, argument, entry: where; no argument if it is the value.
        point: what ``self`` is at that entry, if the operator works entry by entry.
        cotangent: what the derivative was multiplied with there, if the operator works entry by entry.
        found, expected: the numbers.
        kink: the kink that the entry lies on; None away from kinks.
    """

    case: Case
    argument: str | None
    entry: int
    point: float | None
    cotangent: float | None
    found: float
    expected: float
    kink: Kink | None

    def __str__(self) -> str:
        at = f" at {_short(self.point)}" if self.point is not None else ""
        where = f"{self.case}{at}, entry {self.entry}"
        if self.argument is None:
            return f"{where}: the value is {_short(self.found)}, not {_short(self.expected)}"
        what = f"the gradient of {self.argument} is {_short(self.found)}, not {_short(self.expected)}"
        if self.kink is None:
            return f"{where}: {what}, away from kinks"
        return (
            f"{where}: {what}, {'no' if self.is_outside else 'another'} element of {self.kink.set} at {self.kink.place}"
        )

    @property
    def is_outside(self) -> bool:
        """Whether no convention could return it: nan, or, where the kink is one entry by entry, what lies outside."""
        if self.kink is not None and math.isnan(self.found):
            return True
        if self.kink is None or self.kink.between is None or not self.cotangent:
            return False
        low, high = self.kink.between
        return not low - CLOSE <= self.found / self.cotangent <= high + CLOSE

    @property
    def is_beyond(self) -> bool:
        """Whether the operator was given nan or an infinity there: no convention speaks of these."""
        return self.point is not None and not math.isfinite(self.point)


@dataclass(frozen=True, repr=False)
class Conformance:
    """What a backend returned, held against a convention.

    Attributes:
        convention: the one that it was held against.
        passed: how many cases agree in value and gradient.
        failures: numbers that do not.
        lacking: operators that the backend said it lacks.
        died: cases in which it raised anything else, with what it said.
        agrees: by operator, the conventions that all its cases agree with wherever they were given finite numbers.
    """

    convention: str
    passed: int
    failures: tuple[Failure, ...]
    lacking: tuple[str, ...]
    died: tuple[tuple[Case, str], ...]
    agrees: Mapping[str, tuple[str, ...]]

    @property
    def failed(self) -> int:
        """How many cases disagree."""
        return len({id(failure.case) for failure in self.failures})

    def __repr__(self) -> str:
        told = f"{self.passed:,} cases passed, {self.failed:,} failed, {len(self.died):,} died"
        return f"<Conformance to {self.convention}: {told}, {len(self.lacking):,} operators are lacking>"

    def __bool__(self) -> bool:
        """Whether all that the backend has agrees."""
        return not self.failures and not self.died

    def __str__(self) -> str:
        kinds = Counter(kind(failure) for failure in self.failures)
        lines = [
            f"{self.convention}: {self.passed} cases agree, {self.failed} do not, {len(self.died)} died; "
            f"{len(self.lacking)} operators are lacking."
        ]
        lines += [f"  numbers that differ {each}: {count}" for each, count in kinds.items()]
        lines += [f"  {failure}" for failure in self.failures]
        lines += [f"  {case}: died: {said}" for case, said in self.died]
        others = {name: found for name, found in self.agrees.items() if self.convention not in found}
        lines += [f"  {name} agrees with {', '.join(found) or 'no convention'}" for name, found in others.items()]
        return "\n".join(lines)


def cases(operators: Iterable[str] | None = None) -> Iterator[Case]:
    """The cases of the pack, of all operators or of some.

    Raises:
        ValueError: for an operator that it does not have.
    """
    rows = json.loads(DATA.read_text())["cases"]
    wanted = None if operators is None else set(operators)
    unknown = (wanted or set()) - {name for row in rows for name in (row["operator"], row["overload"])}
    if unknown:
        raise ValueError(f"no cases of {', '.join(sorted(unknown))}: the pack has {', '.join(_operators(rows))}.")
    for row in rows:
        if wanted is None or not wanted.isdisjoint((row["operator"], row["overload"])):
            yield _case(row)


def conventions() -> tuple[str, ...]:
    """The conventions that the pack has gradients of."""
    return tuple(json.loads(DATA.read_text())["conventions"])


def conformance(
    run: Run, convention: str = "torch-2.14", *, operators: Iterable[str] | None = None, close: float = CLOSE
) -> Conformance:
    """Run a backend on every case, and compare its values and gradients with those of a convention.

    ``run`` takes a `Case` and returns its value and a mapping of gradients, as nested lists or as anything that has a
    ``tolist``; it raises NotImplementedError for what it lacks.

    Raises:
        ValueError: for a convention or an operator that the pack does not have.
    """
    if convention not in conventions():
        raise ValueError(f"no gradients under {convention!r}: the pack has {', '.join(conventions())}.")
    failures, died, lacking, passed = list[Failure](), list[tuple[Case, str]](), dict[str, None](), 0
    judged: dict[str, set[str]] = {}
    broken: dict[str, set[str]] = {}
    for case in cases(operators):
        try:
            value, gradients = run(case)
        except NotImplementedError:
            lacking[case.operator] = None
            continue
        except Exception as error:
            died.append((case, f"{type(error).__name__}: {error}".partition("\n")[0]))
            continue
        wrong = {name: list(_failures(case, value, gradients, name, close)) for name in case.gradients}
        judged.setdefault(case.operator, set()).update(wrong)
        broken.setdefault(case.operator, set()).update(
            name for name, found in wrong.items() if not all(each.is_beyond for each in found)
        )
        if convention in wrong:
            failures += wrong[convention]
            passed += not wrong[convention]
    agrees = {
        name: tuple(each for each in conventions() if each in some and each not in broken[name])
        for name, some in judged.items()
    }
    return Conformance(convention, passed, tuple(failures), tuple(lacking), tuple(died), agrees)


def _failures(
    case: Case, value: Entries, gradients: Mapping[str, Entries], convention: str, close: float
) -> Iterator[Failure]:
    points = _flat(case.arguments["self"]) if "self" in case.tensors else []
    is_entrywise = bool(points) and len(points) == len(_flat(case.value)) and all(each.between for each in case.kinks)
    cotangents = _flat(case.cotangent)
    compared = [(None, value, case.value)]
    compared += [(name, gradients.get(name), case.gradients[convention][name]) for name in case.differentiated]
    for name, found, expected in compared:
        numbers, wanted = _flat(found), _flat(expected)
        if len(numbers) != len(wanted):
            raise ValueError(f"{case}: {len(numbers)} entries of {name or 'the value'}, where {len(wanted)} belong")
        for entry, (one, other) in enumerate(zip(numbers, wanted, strict=True)):
            if not _same(one, other, close):
                kink = None if name is None else _kink(case, entry)
                given = (points[entry], cotangents[entry]) if is_entrywise else (None, None)
                yield Failure(case, name, entry, *given, one, other, kink)


def kind(failure: Failure) -> str:
    if failure.is_beyond:
        return "at nan or infinity"
    if failure.argument is None:
        return "in value"
    if failure.kink is None:
        return "away from kinks"
    return "on kinks: no element of the set" if failure.is_outside else "on kinks: another element"


def _kink(case: Case, entry: int) -> Kink | None:
    for kink in case.kinks:
        if kink.hit is None or (entry < len(kink.hit) and kink.hit[entry]):
            return kink
    return None


def _same(one: float, other: float, close: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=close, abs_tol=close)


def _flat(entries: Entries) -> list[float]:
    """The numbers of nested lists, or of what has a ``tolist``."""
    entries = entries.tolist() if hasattr(entries, "tolist") else entries
    if entries is None:
        return []
    if isinstance(entries, list | tuple):
        return [number for each in entries for number in _flat(each)]
    return [float(entries)]


def _case(row: Mapping[str, Any]) -> Case:
    kinks = tuple(Kink(**each) for each in row["kinks"])
    tuples = {name: tuple(row[name]) for name in ("tensors", "differentiated")}
    return Case(**{**row, **tuples, "kinks": kinks})


def _operators(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["operator"] for row in rows))


def _short(number: float | None) -> str:
    return f"{number:.6g}"
