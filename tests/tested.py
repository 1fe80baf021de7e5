"""What a run of the tests did: what passed, what failed, and what was skipped and why.

Every run ends with it. `make test` has several, on one torch and another: `--tested` keeps the account of each in a
file, and ``python tests/tested.py build/tested/*.json`` shows them together and fails if one of them has.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import may_differ

STARTED = time.monotonic()


def account(reporter: Any, config: Any, status: int) -> dict[str, Any]:
    """Of a run that has ended, as JSON holds it."""
    import torch

    from subgrad.kernels.native import build

    reports = {outcome: reporter.getreports(outcome) for outcome in ("passed", "failed", "error", "skipped", "xfailed")}
    return {
        "torch": torch.__version__,
        "native": build.is_used(),
        "left out": may_differ.shown() if config.option.may_differ else {},
        "chosen": _chosen(config.option, config.args if config.args != config.getini("testpaths") else []),
        "seconds": time.monotonic() - STARTED,
        "status": int(status),
        "passed": len(reports["passed"]),
        "failed": [report.nodeid for report in reports["failed"] + reports["error"]],
        "skipped": Counter(_reason(report) for report in reports["skipped"]),
        "expected to fail": Counter(report.wasxfail.removeprefix("reason: ") for report in reports["xfailed"]),
    }


def _reason(report: Any) -> str:
    _, _, said = report.longrepr
    return said.removeprefix("Skipped: ")


def _chosen(option: Any, paths: list[str]) -> str:
    """What of all tests: folders, markers, and what is left out."""
    given = [*paths, *([option.markexpr] if option.markexpr else []), *([option.keyword] if option.keyword else [])]
    left_out = f" but {', '.join(option.ignore)}" if option.ignore else ""
    return (", ".join(given) or "everything") + left_out


def shown(run: dict[str, Any]) -> Iterator[str]:
    """The lines of an account."""
    part = "with" if run["native"] else "without"
    minutes, seconds = divmod(round(run["seconds"]), 60)
    yield f"torch {run['torch']} {part} the C++ part, {minutes}:{seconds:02}: {run['chosen']}"
    yield f"{run['passed']:8,} passed"
    for name in run["failed"]:
        yield f"  FAILED {name}"
    if run["status"] and not run["failed"]:
        yield f"  FAILED: pytest ended with {run['status']}"
    for reason, names in run["left out"].items():
        yield f"  left to the newest torch: {reason}: {names}"
    for kind in ("expected to fail", "skipped"):
        for reason, number in sorted(run[kind].items(), key=lambda item: -item[1]):
            yield f"{number:8,} {kind}: {reason}"


def main(paths: list[str]) -> int:
    missing = [path for path in paths if not Path(path).exists()]
    runs = [json.loads(Path(path).read_text()) for path in paths if path not in missing]
    for run in runs:
        print(*shown(run), "", sep="\n")
    for path in missing:
        print(f"FAILED: no run has written {path}\n")
    passed, seconds = (sum(run[each] for run in runs) for each in ("passed", "seconds"))
    skipped = sum(number for run in runs for number in run["skipped"].values())
    print(f"in all {passed:,} passed, {skipped:,} skipped, {seconds / 60:.1f} minutes")
    return int(bool(missing) or any(run["status"] for run in runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
