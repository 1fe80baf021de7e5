"""Twenty programs whose gradient is infinite or NaN: the line that `detect_anomaly` names, and that of the audit.

    python scripts/nan_audit.py

Each is run in an unchanged loop: batches that are well, and one that is not. Where every batch is bad there is one. The
line that is to blame is marked in the programs, `tests/audit/nan_programs.py`. Losses and gradients are held against
those of a loop that nobody watches, to the bit. Writes the table of docs/nan.md.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sections import write_section
from torch import Tensor

import subgrad

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from audit import nan_programs  # noqa: E402
from audit.nan_programs import PROGRAMS, Program  # noqa: E402

PAGE = ROOT / "docs" / "nan.md"


@dataclass(frozen=True)
class Named:
    """What was named: an operator and a line; None for nothing."""

    operator: str
    line: int | None


def trained(program: Program, around: Callable[[], AbstractContextManager[Any]]) -> tuple[Tensor, Any]:
    """Losses and gradients of all steps, and what the watch has found. Weights stay: a batch is bad for these."""
    w = program.weight.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    found = []
    with around() as watch:
        for batch in [program.bad] if program.good is None else [program.good, program.good, program.bad]:
            optimizer.zero_grad()
            loss = program.loss(w, batch)
            loss.backward()
            found += [loss.detach().reshape(1), torch.zeros(()) if w.grad is None else w.grad.clone()]
            optimizer.step()
    return torch.cat([*found, w.detach()]), watch


def by_anomaly_mode(program: Program) -> Named | None:
    """What `torch.autograd.detect_anomaly` stops at, and the innermost line of the program in what it prints."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            trained(program, torch.autograd.detect_anomaly)
        except RuntimeError as error:
            operator = re.search(r"Function '(\w+)' returned nan", str(error))
            lines = re.findall(r'nan_programs\.py", line (\d+)', "".join(str(each.message) for each in told))
            return Named(operator[1] if operator else "", int(lines[-1]) if lines else None)
    return None


def by_audit(program: Program) -> tuple[Named | None, bool, bool]:
    """What the audit names, whether there is advice, and whether the run is that without it, to the bit."""
    plain, _ = trained(program, nullcontext)
    watched, audit = trained(program, lambda: subgrad.audit(nonfinite=True))
    bits = [each.view(torch.int32) for each in (plain, watched)]
    found = audit.nonfinite[0] if audit.nonfinite else None
    line = None if found is None else found.guilty
    named = None if line is None else Named(line.operator, line.site.line)
    return named, bool(found and found.advice), torch.equal(*bits)


def code(line: int | None) -> str:
    if line is None:
        return "a line that it does not name"
    source = inspect.getsource(nan_programs).splitlines()[line - 1]
    return f"`{source.partition('  # ')[0].strip()}`"


def row(program: Program) -> tuple[str, bool, bool, bool]:
    guilty = program.lines()["guilty"]
    anomaly, (audit, has_advice, is_untouched) = by_anomaly_mode(program), by_audit(program)
    is_named = audit is not None and audit.line == guilty and has_advice
    is_right = anomaly is not None and anomaly.line == guilty
    theirs = (
        "nothing" if anomaly is None else f"`{anomaly.operator}`, " + ("the same" if is_right else code(anomaly.line))
    )
    ours = code(audit.line) if audit else "nothing"
    cells = (program.field, program.name.replace("_", " "), ours, "yes" if is_named else "no", theirs)
    return f"| {' | '.join(cells)} |", is_named, is_right, is_untouched


def main() -> int:
    rows = [row(program) for program in PROGRAMS]
    named, theirs, untouched = (sum(each[place] for each in rows) for place in (1, 2, 3))
    text = "\n".join(
        (
            f"Written by `scripts/nan_audit.py`, torch {torch.__version__.partition('+')[0]}. The audit names the "
            f"guilty line in {named} of {len(rows)}, `detect_anomaly` in {theirs}. Losses and gradients under "
            f"the audit are those of a run that nobody watches, to the bit, in {untouched} of {len(rows)}.",
            "",
            "| field | program | the line that the audit names | it is to blame | `detect_anomaly` names |",
            "|---|---|---|---|---|",
            *(each[0] for each in rows),
        )
    )
    write_section(PAGE, "nan_audit", text)
    print(text)
    return int(not named == untouched == len(rows))


if __name__ == "__main__":
    sys.exit(main())
