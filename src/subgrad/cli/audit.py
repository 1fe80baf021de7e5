"""``subgrad audit``: an unchanged script, watched; ``subgrad report``: what it wrote, of all ranks together."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from subgrad.cli.arguments import (
    CannotWrite,
    Parser,
    convention,
    file,
    new_command,
    of_rank,
    takes_convention,
    takes_program,
    whole,
    write,
)
from subgrad.cli.gate import exit_code, gate_of, needs_comparison, takes_gate

if TYPE_CHECKING:
    from subgrad.audit import Audit, Session

COMPARED = ("torch-2.13", "torch-2.14")


def add(commands: Any) -> None:
    audit = new_command(
        commands,
        "audit",
        "an unchanged script or module, watched: which of its lines land on kinks",
        "Run a script or module as python does, and say which of its lines land on kinks, how often, and what the "
        f"change from {COMPARED[0]} to {COMPARED[1]} does to its gradients. Losses, gradients and weights stay what "
        "they are.",
        "subgrad audit train.py --epochs 1",
        "subgrad audit --compare torch jax --every 1 -m package.train",
        "subgrad audit --nonfinite train.py",
        "subgrad audit --fail-on-change train.py",
    )
    _takes_what_to_watch(audit)
    takes_convention(audit, "torch")
    _takes_files(audit, "subgrad-audit.html")
    takes_gate(audit, runs=True)
    takes_program(audit)
    audit.set_defaults(command=_audit)

    report = new_command(
        commands,
        "report",
        "show what subgrad audit --json wrote, several ranks as one",
        "Merge what the ranks of a run wrote, and show it: as text, as a page, or to a gate.",
        "subgrad report audit.json",
        "subgrad report audit.rank*.json --html report.html --fail-on-change",
    )
    report.add_argument("records", type=_record, nargs="+", metavar="RECORD.json", help="one for each rank")
    _takes_files(report)
    takes_gate(report, runs=False)
    report.set_defaults(command=_report)


def _takes_what_to_watch(audit: Parser) -> None:
    audit.add_argument(
        "--compare",
        type=convention,
        nargs=2,
        metavar=("NAME", "NAME"),
        help=f"two conventions whose gradients are held against each other (default: {' '.join(COMPARED)})",
    )
    audit.add_argument(
        "--no-compare", action="store_true", help="only count: comparing walks the graph of a step once more"
    )
    audit.add_argument(
        "--compare-every", type=_least_one, metavar="N", help="in one step of N (default: ten times EVERY)"
    )
    audit.add_argument("--every", type=_least_one, metavar="N", help="record one step of N (default: 10)")
    audit.add_argument(
        "--nonfinite",
        action="store_true",
        help="which line makes a gradient infinite or NaN; kinks are counted beside it with --every or --compare",
    )
    audit.add_argument(
        "--ulps", type=_least_none, default=0, metavar="N", help="count what is within N last places too"
    )


def _takes_files(command: argparse.ArgumentParser, page: str | None = None) -> None:
    default = f" (default: {page})" if page else ""
    command.add_argument(
        "--html", type=file, default=page, metavar="FILE", help=f"a report to look at, which needs no network{default}"
    )
    command.add_argument("--json", type=file, metavar="FILE", help="write the audit, for subgrad report")


def _least_one(text: str) -> int:
    return whole(text, 1, 2**31)


def _least_none(text: str) -> int:
    return whole(text, 0, 2**31)


def _record(text: str) -> Audit:
    from subgrad.audit import Audit

    try:
        return Audit.from_json(Path(text).read_bytes())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't open {text!r}: {error.strerror}") from None
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no audit that subgrad wrote") from None


def _report(options: argparse.Namespace) -> int:
    from subgrad.audit import Audit

    merged = Audit.merge(options.records)
    gate = gate_of(options, merged.compared)
    _show(merged, options, sys.stdout)
    return exit_code(gate, merged, 0, options, 0)


def _audit(options: argparse.Namespace) -> int:
    from subgrad.apply.use import set_default
    from subgrad.gate import looked_at
    from subgrad.script import CannotRun, run_program

    session = _session(options)
    gate = gate_of(options, session.compared)
    set_default(options.convention)
    for name in ("html", "json"):  # the script may go to another folder
        path = getattr(options, name)
        setattr(options, name, path and path.absolute())
    stopped: SystemExit | None = None
    is_run = True
    try:
        with looked_at(session) if gate.nonfinite else nullcontext(), session:
            own: Any = run_program(options.program, options.is_module, "audit", before_error=_clear)
    except SystemExit as asked:
        stopped, own = asked, asked.code
    except CannotRun:
        is_run = False
        raise
    finally:  # however the script ended: what was recorded is kept
        _clear()
        if _has_met(session.result):
            _show(session.result, options, sys.stderr)
        elif is_run:
            print("subgrad audit: no operator with a kink was differentiated.", file=sys.stderr)
    code = exit_code(gate, session.result, session.looked_at, options, own)
    if stopped is not None and code is own:
        raise stopped
    if stopped is not None and isinstance(own, str):  # what Python prints for a SystemExit that nobody catches
        print(own, file=sys.stderr)
    return code


def _session(options: argparse.Namespace) -> Session:
    """The audit that was asked for. A gate looks at every step, if not told otherwise: those that run in CI are few."""
    from subgrad.audit import audit
    from subgrad.audit.session import EVERY

    if options.no_compare and (options.compare or needs_comparison(options)):
        options.refuse("argument --no-compare: not allowed with what compares")
    defaults: dict[str, Any] = {}
    if needs_comparison(options):
        every = options.every or 1
        defaults = {"every": every, "compare_every": every, "compare": COMPARED, "compare_grad": True}
    elif not options.no_compare and not options.nonfinite:
        defaults = {"compare": COMPARED}
    given = {"every": options.every, "compare_every": options.compare_every, "compare": options.compare}
    settings = {**defaults, **{name: value for name, value in given.items() if value is not None}}
    if options.fail_on_nonfinite and not options.nonfinite:  # kinks are counted as without it
        settings.setdefault("every", EVERY)
    nonfinite = options.nonfinite or options.fail_on_nonfinite
    return audit(ulps=options.ulps, nonfinite=nonfinite, listeners=[_progress], **settings)


def _show(found: Audit, options: argparse.Namespace, to: TextIO) -> None:
    """Write the files, then print the text, whose last line is the verdict; what cannot be written loses nothing else.

    Raises:
        CannotWrite: for the first such file.
    """
    unwritten: list[CannotWrite] = []
    for path, made in ((options.html, found.to_html), (options.json, found.to_json)):
        if path is not None:
            place = of_rank(path)
            try:
                write(place, made().encode())
            except CannotWrite as error:
                unwritten.append(error)
            else:
                print(f"written: {place}", file=sys.stderr)
    print(found, file=to)
    if unwritten:
        raise unwritten[0]


def _has_met(found: Audit) -> bool:
    return bool(found.rows or found.steps or found.notes)


def _progress(step: int, met: Mapping[str, float]) -> None:
    if met and sys.stderr.isatty():
        print(f"\rsubgrad audit: step {step:,}, {met['hits']:,} hits ", end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
