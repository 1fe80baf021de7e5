"""What `subgrad audit` and `subgrad report` are given to fail for, and how they say so."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subgrad.cli.arguments import file, of_rank, write

if TYPE_CHECKING:
    from subgrad.audit import Audit
    from subgrad.gate import Baseline, Gate, Verdict

FAILED = 3  # the exit code; scripts mostly end with 1 or 2 where they fail themselves


def takes_gate(command: argparse.ArgumentParser, runs: bool) -> None:
    gate = command.add_argument_group("gate", f"exit code {FAILED} and a line that says why; else the script's own")
    gate.add_argument("--fail-on-change", action="store_true", help="fail if gradients differ between the conventions")
    if runs:
        gate.add_argument("--fail-on-nonfinite", action="store_true", help="fail if a gradient is infinite or nan")
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
    command.set_defaults(refuse=command.error, fail_on_nonfinite=False)


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


def gate_of(options: argparse.Namespace, compared: Collection[object]) -> Gate:
    """The gate that was asked for, with the folder from which files are named, wherever the script goes."""
    from subgrad.gate import Gate

    is_change = bool(options.fail_on_change or options.baseline)
    if options.tolerance is not None and not is_change:
        options.refuse("--tolerance is how much gradients may change: add --fail-on-change or --baseline FILE")
    for name in ("sarif", "github"):
        if getattr(options, name) and not compared and not options.fail_on_nonfinite:
            options.refuse(f"--{name} shows lines on which gradients depend: add --fail-on-change")
    options.root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    for name in ("sarif", "write_baseline"):
        path = getattr(options, name)
        setattr(options, name, path and path.absolute())
    compares, tolerance = needs_comparison(options), options.tolerance or 0.0
    return Gate(compares, is_change, options.fail_on_nonfinite, tolerance, options.baseline)


def exit_code(gate: Gate, audit: Audit, steps: int, options: argparse.Namespace, own: Any) -> Any:
    """Show what was found; the exit code of a gate that fails, else that of the script."""
    verdict = gate.judge(audit, steps, ended_well=own in (0, None))
    code = FAILED if verdict.why else own
    _write(verdict, gate, audit, options, code)
    if options.github:
        from subgrad.report.annotations import annotation

        for finding in verdict.findings:
            if not finding.is_known:
                print(annotation(finding, options.root), flush=True)
    if verdict.why:
        print(f"subgrad: exit code {FAILED}: {verdict.why}.", file=sys.stderr)
    elif verdict.passed:
        print(f"subgrad: passed: {verdict.passed}.", file=sys.stderr)
    return code


def _write(verdict: Verdict, gate: Gate, audit: Audit, options: argparse.Namespace, code: Any) -> None:
    if options.write_baseline is not None and audit.effects:
        from subgrad.gate import Baseline

        Baseline.of(verdict.findings, options.write_baseline).write(_place(options.write_baseline))
    if options.sarif is not None:
        from subgrad.report.sarif import sarif

        number = code if isinstance(code, int) else int(code is not None)  # as Python ends with it
        text = sarif(audit, verdict.findings, options.root, gate.baseline is not None, number)
        write(_place(options.sarif), text.encode())


def _place(path: Path) -> Path:
    place = of_rank(path)
    print(f"written: {place}", file=sys.stderr)
    return place
