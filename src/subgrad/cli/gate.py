"""What `subgrad audit` and `subgrad report` are given to fail for, and how they say so."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subgrad.cli.arguments import file, of_rank, write

if TYPE_CHECKING:
    from subgrad.audit import Audit
    from subgrad.gate import Baseline, Gate

FAILED = 3  # the exit code; scripts mostly end with 1 or 2 where they fail themselves


def takes_gate(command: argparse.ArgumentParser) -> None:
    gate = command.add_argument_group("gate", f"exit code {FAILED} and a line that says why; else the script's own")
    gate.add_argument("--fail-on-change", action="store_true", help="fail if gradients differ between the conventions")
    gate.add_argument(
        "--tolerance",
        type=_ratio,
        metavar="R",
        help="by how much they may, as the norm of the difference over that of the gradients (default: 0)",
    )
    gate.add_argument(
        "--baseline", type=_baseline, metavar="FILE", help="fail for lines only that are not in this file"
    )
    gate.add_argument(
        "--write-baseline", type=file, metavar="FILE", help="write the lines on which gradients depend, to be committed"
    )
    gate.add_argument("--sarif", type=file, metavar="FILE", help="write them as SARIF 2.1.0, for code scanners")
    gate.add_argument("--github", action="store_true", help="print them as annotations, for GitHub's runner")
    command.set_defaults(refuse=command.error)


def _ratio(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on, as 0.01 for one percent")
    return number


def _baseline(text: str) -> Baseline:
    from subgrad.gate import Baseline

    try:
        return Baseline.read(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"can't open {text!r}: {error.strerror}. Write it first, with --write-baseline {text}, and commit it."
        ) from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def needs_comparison(options: argparse.Namespace) -> bool:
    """Whether anything was asked for that gradients have to be compared for."""
    return bool(options.fail_on_change or options.baseline or options.write_baseline)


def gate_of(options: argparse.Namespace) -> Gate:
    """The gate that was asked for, with the folder from which files are named, wherever the script goes."""
    from subgrad.gate import Gate

    is_change = bool(options.fail_on_change or options.baseline)
    if options.tolerance is not None and not is_change:
        options.refuse("--tolerance is how much gradients may change: add --fail-on-change or --baseline FILE")
    for name in ("sarif", "github"):
        if getattr(options, name) and not options.has_conventions:
            options.refuse(f"--{name} shows lines on which gradients depend: add --fail-on-change")
    options.root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    for name in ("sarif", "write_baseline"):
        path = getattr(options, name)
        setattr(options, name, path and path.absolute())
    return Gate(is_change, options.tolerance or 0.0, options.baseline)


def judged(gate: Gate, audit: Audit, options: argparse.Namespace, code: Any) -> int | None:
    """Show what was found; the exit code if the gate fails, else None."""
    from subgrad.gate import Baseline, nothing_compared
    from subgrad.report.annotations import annotation
    from subgrad.report.sarif import sarif

    verdict = gate.judge(audit)
    why = verdict.why
    if not audit.effects and needs_comparison(options):
        # Of a script that fails before anything can be compared, its own code says more.
        why = nothing_compared(audit) if code in (0, None) else ""
    elif options.write_baseline is not None:
        Baseline.of(verdict.findings, options.write_baseline).write(_place(options.write_baseline))
    if options.sarif is not None:
        exit_code = FAILED if why else code if isinstance(code, int) else int(code is not None)
        text = sarif(audit, verdict.findings, options.root, gate.baseline is not None, exit_code)
        write(_place(options.sarif), text.encode())
    if options.github:
        for finding in verdict.findings:
            if not finding.is_known:
                print(annotation(finding, options.root), flush=True)
    if why:
        print(f"subgrad: exit code {FAILED}: {why}.", file=sys.stderr)
        return FAILED
    if verdict.passed:
        print(f"subgrad: passed: {verdict.passed}.", file=sys.stderr)
    return None


def _place(path: Path) -> Path:
    place = of_rank(path)
    print(f"written: {place}", file=sys.stderr)
    return place
