"""What real frameworks return at kinks: each measured in an environment and a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from subgrad.survey.environments import NotMade, Tell, environment
from subgrad.survey.frameworks.packages import PACKAGES

PACK = Path(__file__).parents[2] / "testing" / "conformance_pack.json"
WORKERS = Path(__file__).with_name("workers")
MORE = Path(__file__).with_name("more_cases.json")
LONGEST = 600  # seconds; tinygrad's interpreter of kernels takes half a minute

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Returned:
    """What one spelling returns for one case.

    Attributes:
        value: of the operation.
        reverse: the gradients of the differentiated arguments, multiplied with the cotangent.
        forward: the same by forward mode; None where there is none, and a sentence where it fails.
        failed: why there is none of these.
    """

    value: Any = None
    reverse: Mapping[str, Any] | None = None
    forward: Mapping[str, Any] | str | None = None
    failed: str | None = None


@dataclass(frozen=True)
class Answers:
    """One framework.

    Attributes:
        framework: its name.
        version: of the package; None if it could not be asked.
        cases: what each of its spellings returns, by case in the order of `cases`.
        failed: why there are none, in the words of what failed.
    """

    framework: str
    version: str | None = None
    cases: tuple[Mapping[str, Returned], ...] = ()
    failed: str | None = None


@cache
def cases() -> tuple[Case, ...]:
    """The operations and their points, at kinks, at ties and away from them: the conformance pack, and some more."""
    return (*json.loads(PACK.read_text())["cases"], *json.loads(MORE.read_text()))


def chosen(operators: Collection[str] = ()) -> list[Case]:
    """The cases of some operators, or of all."""
    return [case for case in cases() if not operators or _names(case) & set(operators)]


def signature(case: Case) -> int:
    """What tells a call from others: a record is of other ones where it differs."""
    given = {name: case[name] for name in ("operator", "arguments", "differentiated", "cotangent")}
    return crc32(json.dumps(given, sort_keys=True).encode())


def _names(case: Case) -> set[str]:
    overload = case["overload"]
    return {case["operator"], *([overload.removeprefix("aten::")] if overload else [])}


def measure(
    name: str, version: str | None = None, operators: Collection[str] = (), tell: Tell = lambda message: None
) -> Answers:
    """Ask a framework, in an environment that is made for it; what fails is said, not raised."""
    package = PACKAGES[name]
    try:
        python = interpreter(name, version, tell)
    except NotMade as error:
        return Answers(name, failed=str(error))
    tell("measuring")
    command = [str(python), "-W", "ignore", str(WORKERS / f"with_{name}.py")]
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            env={"OMP_NUM_THREADS": "1", **without, **package.variables},
            input=json.dumps(chosen(operators)),
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answers(name, failed=f"it took more than {LONGEST} seconds")
    if done.returncode:
        return Answers(name, failed=_last_line(done.stderr) or f"exit code {done.returncode}")
    return read(name, json.loads(done.stdout))


def interpreter(name: str, version: str | None, tell: Tell = lambda message: None) -> Path:
    """Python of an environment with the framework; torch without a version is the one that runs here."""
    if name == "torch" and version is None:
        return Path(sys.executable)
    return environment(f"framework-{name}-{version or 'newest'}", PACKAGES[name].wanted(version), tell)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def read(name: str, given: Mapping[str, Any]) -> Answers:
    """The answers that a worker has printed."""
    found = tuple({spelling: Returned(**each) for spelling, each in case.items()} for case in given["cases"])
    return Answers(name, given["version"], found)


# Places: a kink that a case meets, and what is returned there.


@dataclass(frozen=True)
class Place:
    """One kink of one case.

    Attributes:
        case: which it belongs to.
        place, set: where the kink lies, and the set of generalised derivatives there, in words.
        entry: the first entry on it; None where many entries make it up together.
    """

    case: Case
    place: str
    set: str
    entry: int | None

    @property
    def numbers(self) -> dict[str, Any]:
        """The arguments that are numbers, as far as they are given, and those that make up a kink of many entries."""
        arguments, tensors = self.case["arguments"], self.case["tensors"]
        given = {name: each for name, each in arguments.items() if self.entry is None or name not in tensors}
        return {name: each for name, each in given.items() if each not in (None, [], False)}

    def element(self, gradients: Mapping[str, Any] | str | None) -> tuple[float, ...] | str | None:
        """The weights of the differentiated arguments at the entry; of a kink of many entries, the whole gradient."""
        if not isinstance(gradients, Mapping):
            return gradients
        flat = {name: _flat(gradients[name]) for name in self.case["differentiated"]}
        if self.entry is not None:
            cotangent = _flat(self.case["cotangent"])[self.entry]
            return tuple(each[self.entry] / cotangent for each in flat.values())
        cotangents = _flat(self.case["cotangent"])
        scale = cotangents[0] if len(cotangents) == 1 else 1.0
        return tuple(number / scale for each in flat.values() for number in each)


def places(found: Sequence[Case]) -> Iterator[tuple[int, Place]]:
    """The kinks of some cases, with the number of the case."""
    for number, case in enumerate(found):
        for kink in case["kinks"]:
            entry = None if kink["hit"] is None else kink["hit"].index(True)
            yield number, Place(case, kink["place"], kink["set"], entry)


def _flat(entries: Any) -> list[float]:
    return [number for each in entries for number in _flat(each)] if isinstance(entries, list) else [float(entries)]
