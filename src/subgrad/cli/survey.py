"""``subgrad survey``: what torch returns at every kink."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import torch

from subgrad.cli.arguments import takes_convention
from subgrad.kinks import KINKS


def add(commands: Any) -> None:
    survey = commands.add_parser(
        "survey", help="what the installed torch returns at every kink, and whether that keeps its rule"
    )
    form = survey.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for machines: one list of findings")
    form.add_argument(
        "--repro", type=_operator, metavar="OP", help="an issue report for each overload of OP that breaks the rule"
    )
    takes_convention(survey)
    survey.set_defaults(command=_survey)


def _operator(text: str) -> str:
    """An operator of the table, by its name or one of its overloads: ``max``, ``max.dim``, ``aten::max.dim``."""
    name = text.removeprefix("aten::")
    try:
        KINKS[name]
    except KeyError as error:
        raise argparse.ArgumentTypeError(error.args[0]) from None
    return name


def _survey(options: argparse.Namespace) -> int:
    from subgrad.survey import places

    if options.repro:
        return _repro(options.repro)
    if options.json:
        print(json.dumps([place.finding(options.convention).to_dict() for place in places()], indent=2))
        return 0
    try:
        from rich.console import Console
        from rich.progress import track

        from subgrad.report.survey_text import summary, survey_table
    except ModuleNotFoundError:
        print(
            "subgrad survey draws its table with rich: pip install 'subgrad[cli]', or ask for --json.", file=sys.stderr
        )
        return 2
    # One place a line where output is no terminal.
    console = Console(width=None if sys.stdout.isatty() else 1000)
    everywhere = track(
        list(places()),
        "measuring",
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    found = [place.finding(options.convention) for place in everywhere]
    console.print(survey_table(found))
    console.print(summary(found), highlight=False)
    return 0


def _repro(operator: str) -> int:
    from subgrad.report.repro import reports
    from subgrad.survey import places

    measured = [(place, place.finding("torch")) for place in places() if place.kink in KINKS[operator]]
    found = reports(measured)
    if found:
        print("\n\n---\n\n".join(found))
    elif any(finding.keeps_rule for _, finding in measured):
        print(f"{operator}: torch {torch.__version__} keeps its documented rule at every kink.")
    else:
        print(f"{operator}: no rule to break. It jumps, or torch {torch.__version__} has no derivative of it.")
    return 0
