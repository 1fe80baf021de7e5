"""Plant wrong rules one by one and see who catches them. Write a part of the page.

    python scripts/mutations.py                  # 210 of them: a part of docs/clarke-evidence.md
    python scripts/mutations.py --first 10       # the first ten of these; the page is left alone
    python scripts/mutations.py --list           # what would be planted
    python scripts/mutations.py --only 17        # one, with all that it changes

What was found is kept in build/mutations.json: a run that was stopped goes on where it was, as long as the sources are
the same. Reasons why a mutant changes no result are kept in scripts/mutations.json, by what it replaces.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from rich.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # ahead of this folder, in which a file is called as the package is

from clarke.mutants import Mutant, chosen  # noqa: E402
from sections import write_section  # noqa: E402

PAGE = ROOT / "docs" / "clarke-evidence.md"
KEPT = ROOT / "build" / "mutations.json"
REASONS = ROOT / "scripts" / "mutations.json"
NUMBER, SECONDS = 210, 600  # of one step: what does not end is told by the small programs, which are stopped
# What is run where the small programs show nothing.
TESTS = (
    *("test_every_row", "test_layers", "test_refusals", "test_groups", "test_spectra_vectors", "test_unseen"),
    *("test_module_state", "test_unseen_jumps", "test_undefined", "test_sharpness"),
    "test_exact_looks",
)
SIGNS = ("FAILED", "ERROR")  # how a line of pytest begins that names a test
SMALL_PROGRAMS = "import json, sys; from clarke import battery; {}"
RECORD = SMALL_PROGRAMS.format("json.dump(battery.record(), open(sys.argv[1], 'w'))")
CHANGES = SMALL_PROGRAMS.format("print(json.dumps(battery.changes(json.load(open(sys.argv[1])))))")


@dataclass(frozen=True)
class Place:
    """A copy of the package that a mutant is planted in."""

    folder: Path

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.folder / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
        return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment(), capture_output=True, text=True, timeout=SECONDS, cwd=ROOT,
        )  # fmt: skip


def place() -> Place:
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return Place(folder)


def tried(where: Place, mutant: Mutant, baseline: Path, failing: set[str]) -> dict[str, Any]:
    """Who catches a mutant: the small programs first, then, unless it is known why nothing changes, the tests."""
    path = where.folder / "src" / "subgrad" / "clarke" / mutant.file
    right = path.read_text()
    path.write_text(mutant.applied(right))
    try:
        found = _small_programs(where, baseline)
        if found["by"] == "nothing" and described(mutant) not in reasons():
            found = _tests(where, failing)
        return found
    except subprocess.TimeoutExpired:
        return {"by": "error", "what": f"it takes longer than {SECONDS} seconds"}  # not even stopped by a signal
    finally:
        path.write_text(right)


def _small_programs(where: Place, baseline: Path) -> dict[str, Any]:
    done = where.run("-c", CHANGES, str(baseline))
    if done.returncode:
        return {"by": "error", "what": (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1][:200]}
    found = json.loads(done.stdout.splitlines()[-1])
    counts = {name: len(each) for name, each in found.items()}
    for name, by in (("wrong", "test"), ("refused", "certificate"), ("died", "error")):
        if found[name]:
            return {"by": by, "what": found[name][0][:200], "counts": counts}
    return {"by": "nothing", "what": (found["other"] or [""])[0][:200], "counts": counts}


def _tests(where: Place, failing: set[str]) -> dict[str, Any]:
    left_out = [argument for each in sorted(failing) for argument in ("--deselect", each)]
    done = where.run("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *left_out, *_files())
    if done.returncode == 0:
        return {"by": "nothing", "what": ""}
    named = next((line for line in done.stdout.splitlines() if line.startswith(SIGNS)), None)
    if named is None:  # pytest itself did not get so far: what it says last tells why
        return {"by": "error", "what": f"pytest ends with {done.returncode}: {(done.stdout + done.stderr)[-160:]}"}
    return {"by": "test", "what": named[:200]}


def _files() -> list[str]:
    return [f"tests/clarke/{each}.py" for each in TESTS]


def _failing(where: Place, jobs: int) -> set[str]:
    """Tests that fail without any mutant say nothing about one."""
    done = where.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(jobs), *_files())
    return {line.split(" - ")[0].split(maxsplit=1)[1] for line in done.stdout.splitlines() if line.startswith(SIGNS)}


def fingerprint() -> str:
    """Of the passes and rules; the rest of the package may change meanwhile."""
    parts = ("engine", "functions", "rules")
    files = sorted(each for part in parts for each in (ROOT / "src" / "subgrad" / "clarke" / part).rglob("*.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:16]


def kept() -> dict[str, Any]:
    before = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if before.get("sources") != fingerprint():
        return {"sources": fingerprint(), "found": {}}
    return before


def run(mutants: list[Mutant], jobs: int) -> dict[str, Any]:
    """Those that were not tried yet; each result is written at once."""
    state = kept()
    places: Queue[Place] = Queue()
    for _ in range(jobs):
        places.put(place())
    first = places.get()
    KEPT.parent.mkdir(exist_ok=True)
    baseline = KEPT.with_name("baseline.json")
    first.run("-c", RECORD, str(baseline)).check_returncode()
    if "failing" not in state:
        state["failing"] = sorted(_failing(first, jobs))
    places.put(first)

    def work(mutant: Mutant) -> dict[str, Any]:
        where = places.get()
        try:
            return tried(where, mutant, baseline, set(state["failing"]))
        finally:
            places.put(where)

    left = [each for each in mutants if each.key not in state["found"]]
    with ThreadPoolExecutor(jobs) as pool, Progress() as progress:
        futures = {pool.submit(work, each): each for each in left}
        for done in progress.track(as_completed(futures), total=len(futures), description="mutants"):
            state["found"][futures[done].key] = done.result()
            KEPT.write_text(json.dumps(state, indent=1))
    while not places.empty():
        shutil.rmtree(places.get().folder)
    return state["found"]


def reasons() -> dict[str, str]:
    """Why mutants change no result, by their text: "file: old -> new"."""
    return json.loads(REASONS.read_text()) if REASONS.exists() else {}


def described(mutant: Mutant) -> str:
    old, new = (" ".join(each.split()) for each in (mutant.old, mutant.new))
    if mutant.kind == "leak":
        new = f"{old[:40]} ... detached"
    return f"{mutant.file}: {old[:60]} -> {new[:60]}"


def table(mutants: list[Mutant], found: dict[str, Any]) -> str:
    known = reasons()
    rows, counts = [], Counter()
    for mutant in mutants:
        result = found[mutant.key]
        by = result["by"]
        if by == "nothing":
            by = "changes no result" if described(mutant) in known else "**survived**"
        counts[by] += 1
        what = known[described(mutant)] if by == "changes no result" else _cell(result["what"][:100])
        rows.append(f"| {mutant.kind} | {_cell(described(mutant))} | {by} | {what} |")
    lines = [
        "## Wrong rules, planted one by one",
        "",
        f"Written by `scripts/mutations.py`: {len(mutants)} changes of the files that hold rules, one at a time. Each",
        "is tried with some 2,200 small programs, on their kinks; if nothing shows, with tests, unless it is known why",
        "it changes no result. *certificate*: the library refuses where it returned before, or extrapolates since the",
        "certificate refuses the rule. *test*: it returns what the values of the program contradict, or a test fails.",
        "*error*: another exception is raised.",
        "",
        "| caught by | mutants |",
        "|---|---:|",
        *(f"| {by} | {count} |" for by, count in counts.most_common()),
        "",
        "| kind | change | caught by | first sign, or why nothing changes |",
        "|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", "\\|") if text else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, help="only so many of them")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--only", type=int, help="the number of one")
    parser.add_argument("--list", action="store_true", help="what would be planted")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    mutants = chosen(ROOT / "src" / "subgrad" / "clarke", NUMBER, asked.seed)
    if asked.list:
        for number, mutant in enumerate(mutants):
            print(f"{number:3} {mutant.line:4} {mutant.kind:16} {described(mutant)}")
        return 0
    some = [mutants[asked.only]] if asked.only is not None else mutants[: asked.first]
    found = run(some, asked.jobs)
    survived = 0
    for number, mutant in enumerate(some):
        result = found[mutant.key]
        survived += result["by"] == "nothing" and described(mutant) not in reasons()
        print(f"{number:3} {result['by']:12} line {mutant.line:4} {mutant.kind:15} {described(mutant)}")
        print(f"    {result['what']} {result.get('counts', '')}")
    if len(some) == NUMBER:
        write_section(PAGE, "mutations", table(mutants, found))
    print(Counter(found[each.key]["by"] for each in some), f"{survived} survived")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
