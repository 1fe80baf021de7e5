"""``subgrad survey --html``: the atlas, measured here and in the frameworks that are asked."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from subgrad.cli import arguments
from subgrad.kinks import KINKS
from subgrad.kinks.kink import ALIASES, unknown

if TYPE_CHECKING:
    from subgrad.survey import Place
    from subgrad.survey.frameworks import Answers


def write(
    options: argparse.Namespace,
    asked: Callable[[argparse.Namespace, Sequence[str]], Iterable[Answers]],
    watched: Callable[..., Iterable[Place]],
) -> int:
    """Write the page.

    Args:
        options: of the command.
        asked: what each framework returned, saying what is done for it.
        watched: goes through the places, showing how far it is.
    """
    from subgrad.report.atlas_made import atlas
    from subgrad.report.atlas_page import page
    from subgrad.report.frameworks_text import not_measured
    from subgrad.report.survey_text import count

    _refuse_others(options)
    operators = _operators(options)
    answers = list(asked(options, operators)) if options.frameworks else []
    for each in answers:
        if each.failed is not None:
            print(f"subgrad survey: {not_measured(each)}", file=sys.stderr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says of some operators that they are new, or old
        made = atlas(answers, operators, partial(watched, options=options))
    arguments.write(options.html, page(made).encode())
    print(f"{options.html}: {count(len(made.spots), 'place')} of {count(len(made.operations), 'operation')}")
    return 1 if made.failed else 0


def _refuse_others(options: argparse.Namespace) -> None:
    given = {name: getattr(options, name) for name in ("broken", "diff", "torch", "repro", "json")}
    refused = next((name for name, each in given.items() if each), None)
    if refused is not None:
        options.parser.error(f"argument --html: not allowed with argument --{refused}")
    if str(options.convention) != options.parser.get_default("convention"):
        options.parser.error("argument --html: shows what is returned without a convention; leave --convention away")


def _operators(options: argparse.Namespace) -> list[str]:
    """The operators of the table and the operations of the frameworks that are named."""
    from subgrad.survey.frameworks import cases, chosen

    given: list[str] = options.operators
    operators = [ALIASES.get(each, each).removeprefix("aten::") for each in given]
    wrong = next((each for each in operators if each not in KINKS and not chosen([each])), None)
    if wrong is not None:
        known = [*KINKS.names, *(case["operator"] for case in cases())]
        options.parser.error(f"argument OPERATOR: {unknown('operation', wrong, list(dict.fromkeys(known)))}")
    return operators
