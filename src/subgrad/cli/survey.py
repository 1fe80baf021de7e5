"""``subgrad survey``: what torch returns at every kink, here, under two conventions, in its versions, and in others."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from subgrad.cli.arguments import convention, file, new_command, takes_convention

if TYPE_CHECKING:
    from subgrad.report.survey_text import Line
    from subgrad.survey import Place
    from subgrad.survey.frameworks import Answers
    from subgrad.survey.versions import Measurement


def add(commands: Any) -> None:
    survey = new_command(
        commands,
        "survey",
        "what the installed torch returns at every kink, and whether that keeps its rule",
        "Measure what the installed torch returns at every kink of every operator, in forward and reverse mode, and "
        "hold it against torch's documented rule; or hold two conventions, versions of torch or frameworks against "
        "each other.",
        "subgrad survey clamp relu",
        "subgrad survey --diff torch-2.13 torch-2.14",
        "subgrad survey --frameworks torch,jax --html atlas.html",
    )
    survey.add_argument("operators", nargs="*", metavar="OPERATOR", help="these alone (default: all)")
    form = survey.add_mutually_exclusive_group()
    form.add_argument("--broken", action="store_true", help="only where torch breaks its documented rule")
    form.add_argument(
        "--diff",
        nargs=2,
        type=convention,
        metavar=("NAME", "NAME"),
        help="only where two conventions differ, as in --diff torch-2.13 torch-2.14",
    )
    form.add_argument(
        "--torch",
        type=_versions,
        metavar="VERSION[,VERSION...]",
        help="real versions beside each other, each in an environment that is made once and kept",
    )
    form.add_argument(
        "--frameworks",
        type=_frameworks,
        metavar="NAME[,NAME...]",
        help="real frameworks beside each other, as in torch,jax==0.10.2: each in an environment that is made once",
    )
    form.add_argument(
        "--repro", type=_operator, metavar="OP", help="an issue report for each overload of OP that breaks the rule"
    )
    survey.add_argument("--json", action="store_true", help="for machines: one list")
    survey.add_argument(
        "--html", type=file, metavar="FILE", help="a page of it all; with --frameworks of what those return, too"
    )
    takes_convention(survey)
    survey.set_defaults(command=_survey, parser=survey)


def _operator(text: str) -> str:
    """An operator of the table, by its name or one of its overloads: ``max``, ``max.dim``, ``aten::max.dim``."""
    from subgrad.kinks import KINKS

    name = text.removeprefix("aten::")
    try:
        KINKS[name]
    except KeyError as error:
        raise argparse.ArgumentTypeError(error.args[0]) from None
    return name


def _versions(text: str) -> list[str]:
    from subgrad.survey.environments import VERSION

    wrong = next((each for each in text.split(",") if not VERSION.fullmatch(each)), None)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{wrong!r} is no version of torch: write them as in 2.13.0,2.14.1")
    return list(dict.fromkeys(text.split(",")))


def _frameworks(text: str) -> list[tuple[str, str | None]]:
    from subgrad.survey.frameworks import parsed

    try:
        return list(dict.fromkeys(parsed(each) for each in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(error.args[0]) from None


def _survey(options: argparse.Namespace) -> int:
    if options.html is not None:
        from subgrad.cli.atlas import write

        return write(options, _asked, _watched)
    if options.frameworks:
        return _others(options)
    try:
        options.operators = [_operator(each) for each in options.operators]
    except argparse.ArgumentTypeError as error:
        options.parser.error(f"argument OPERATOR: {error}")
    if options.repro:
        if options.json:
            options.parser.error("argument --json: not allowed with argument --repro")
        if options.operators:
            options.parser.error("argument --repro: names its operator, and goes with no others")
        return _repro(options.repro)
    if options.torch:
        return _real(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says of some operators that they are new, or old
        return _diff(options) if options.diff else _here(options)


def _here(options: argparse.Namespace) -> int:
    from subgrad.report.survey_text import details, overview, summary

    found = [place.finding(options.convention) for place in _watched(_places(options.operators), options)]
    shown = [each for each in found if each.keeps_rule is False] if options.broken else found
    if options.json:
        print(json.dumps([each.to_dict() for each in shown], indent=2))
        return 0
    _print(details(shown) if options.operators or options.broken else overview(shown))
    if shown:
        print()
    _print_wrapped(summary(found))
    return 0


def _places(operators: Sequence[str]) -> list[Place]:
    from subgrad.kinks import KINKS
    from subgrad.survey import places

    kinks = [kink for name in operators for kink in KINKS[name]]
    return [place for place in places() if not operators or place.kink in kinks]


def _watched(places: list[Place], options: argparse.Namespace) -> Iterable[Place]:
    """The places, with a bar on a terminal that moves as they are measured."""
    if options.json or not sys.stderr.isatty():
        return places
    try:
        from rich.console import Console
        from rich.progress import track
    except ModuleNotFoundError:
        return places
    return track(places, "measuring", console=Console(stderr=True), transient=True)


def _diff(options: argparse.Namespace) -> int:
    from subgrad.report.survey_text import differences
    from subgrad.survey import changes
    from subgrad.survey.finding import to_json

    before, after = options.diff
    places = _places(options.operators)
    found = list(changes(before, after, _watched(places, options)))
    if options.json:
        print(json.dumps(to_json(found), indent=2))
    else:
        _print(differences(found, str(before), str(after), len(places)))
    return 0


def _real(options: argparse.Namespace) -> int:
    from subgrad.report.versions_text import failures, versions
    from subgrad.survey.finding import to_json

    found = list(_measured(options))
    for message in failures(found):
        print(f"subgrad survey: {message}", file=sys.stderr)
    if options.json:
        print(json.dumps(to_json(found), indent=2))
    else:
        _print(versions(found))
    return 1 if failures(found) else 0


def _measured(options: argparse.Namespace) -> Iterator[Measurement]:
    """One version after the other, saying what is done for it."""
    from subgrad.survey.versions import measure

    for version in options.torch:
        with _waiting(f"torch {version}") as tell:
            yield measure(version, options.operators, tell)


def _others(options: argparse.Namespace) -> int:
    from subgrad.kinks.kink import ALIASES, unknown
    from subgrad.report.frameworks_text import frameworks, not_measured
    from subgrad.survey.finding import to_json
    from subgrad.survey.frameworks import cases, chosen

    operators = [str(ALIASES.get(each, each)).removeprefix("aten::") for each in options.operators]
    known = list(dict.fromkeys(name for case in cases() for name in (case["operator"], case["overload"]) if name))
    wrong = next((each for each in operators if not chosen([each])), None)
    if wrong is not None:
        options.parser.error(f"argument OPERATOR: {unknown('operation', wrong, known)}")
    found = list(_asked(options, operators))
    for each in found:
        if each.failed is not None:
            print(f"subgrad survey: {not_measured(each)}", file=sys.stderr)
    if options.json:
        print(json.dumps({"cases": to_json(chosen(operators)), "frameworks": to_json(found)}, indent=2))
    else:
        _print(frameworks(found, chosen(operators)))
    return 1 if any(each.failed is not None for each in found) else 0


def _asked(options: argparse.Namespace, operators: Sequence[str]) -> Iterator[Answers]:
    """One framework after the other, saying what is done for it."""
    from subgrad.survey.frameworks import measure

    for name, version in options.frameworks:
        with _waiting(" ".join(filter(None, (name, version)))) as tell:
            yield measure(name, version, operators, tell)


def _waiting(what: str) -> AbstractContextManager[Any]:
    """Tells what is done: on a terminal something that moves, else lines."""
    if sys.stderr.isatty():
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            pass
        else:
            return _Moving(what, Console(stderr=True).status(what))

    def tell(message: str) -> None:
        print(f"{what}: {message}", file=sys.stderr, flush=True)

    return nullcontext(tell)


class _Moving:
    """A spinner with words beside it."""

    def __init__(self, what: str, status: Any):
        self.what, self.status = what, status

    def __enter__(self) -> Any:
        self.status.start()
        return self._tell

    def _tell(self, message: str) -> None:
        self.status.update(f"{self.what}: {message}")

    def __exit__(self, *exception: object) -> None:
        self.status.stop()


def _print(lines: Iterable[Line]) -> None:
    """In colours on a terminal, if rich is there; the same words without."""
    shown = list(lines)
    while shown and not shown[-1].text:
        shown.pop()
    if sys.stdout.isatty():
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            pass
        else:
            console = Console(soft_wrap=True, highlight=False, markup=False)
            for line in shown:
                console.print(line.text, style=line.look or None)
            return
    for line in shown:
        print(line.text)


def _print_wrapped(text: str) -> None:
    from subgrad.report.elements import wrapped

    print("\n".join(wrapped(text)))


def _repro(operator: str) -> int:
    import torch

    from subgrad.report.repro import reports

    measured = [(place, place.finding("torch")) for place in _places([operator])]
    found = reports(measured)
    if found:
        print("\n\n---\n\n".join(found))
    elif any(finding.keeps_rule for _, finding in measured):
        print(f"{operator}: torch {torch.__version__} keeps its documented rule at every kink.")
    else:
        print(f"{operator}: no rule to break. It jumps, or torch {torch.__version__} has no derivative of it.")
    return 0
