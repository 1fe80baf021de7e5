"""What the real frameworks returned, as scripts/record_frameworks.py has recorded it: read without any of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from subgrad.survey.frameworks import PACKAGES, Answers, Returned

FOLDER = Path(__file__).parent / "recorded" / "frameworks"


@cache
def record(framework: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{framework}.json").read_text())


@cache
def answers(framework: str) -> Answers:
    """The answers of a framework, one for each case of the survey."""
    given = record(framework)
    found = tuple({name: _returned(each) for name, each in case["spellings"].items()} for case in given["cases"])
    return Answers(framework, given["version"], found)


def all_answers() -> list[Answers]:
    return [answers(name) for name in PACKAGES]


def _returned(given: dict[str, Any]) -> Returned:
    return Returned(**{**given, "forward": given["reverse"]} if given.get("forward") == "same" else given)
