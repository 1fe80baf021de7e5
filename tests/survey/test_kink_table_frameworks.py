"""What was measured on JAX and TensorFlow by others than this project's survey: the survey finds the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from recorded_frameworks import answers

from subgrad.survey.frameworks import Case, Place, Returned, cases, places
from survey.framework_spellings import JAX, TENSORFLOW, Where

MEASURED = json.loads((Path(__file__).parent / "kink_table_frameworks.json").read_text())
HERE = {"jax": JAX, "tensorflow": TENSORFLOW}
CASES = [(framework, case) for framework, by_name in HERE.items() for case in by_name]


def flat(given: Any) -> list[float]:
    return [number for each in given for number in flat(each)] if isinstance(given, list) else [float(given)]


def found(framework: str, where: Where) -> list[float]:
    """The gradient at a place over its cotangent."""
    operator, spelling, wanted, numbers = where
    numbers = dict(numbers)
    at = numbers.pop("at", None)
    (place, returned), *_ = [
        (place, answers(framework).cases[index][spelling])
        for index, place in places(cases())
        if place.case["operator"] == operator and place.place == wanted
        if spelling in answers(framework).cases[index] and is_given(place.case, numbers)
    ]
    if at is not None:
        return at_number(place.case, returned, at)
    if place.entry is not None:
        element = place.element(returned.reverse)
        assert isinstance(element, tuple)
        return list(element)
    return over_cotangent(place, returned)


def is_given(case: Case, numbers: Mapping[str, Any]) -> bool:
    return all(case["arguments"].get(name) == each for name, each in numbers.items())


def at_number(case: Case, returned: Returned, number: float) -> list[float]:
    """Where the first argument is a number, told from its negative if that is 0."""
    first, *_ = case["differentiated"]
    entry = [str(each) for each in flat(case["arguments"][first])].index(str(number))
    assert returned.reverse is not None
    return [flat(each)[entry] / flat(case["cotangent"])[entry] for each in returned.reverse.values()]


def over_cotangent(place: Place, returned: Returned) -> list[float]:
    cotangents = flat(place.case["cotangent"])
    scale = next(each for each in cotangents if each != 0)
    assert returned.reverse is not None
    return [number / scale for name in place.case["differentiated"] for number in flat(returned.reverse[name])]


@pytest.mark.parametrize(("framework", "case"), CASES)
def test_the_survey_finds_what_was_measured(framework: str, case: str) -> None:
    wanted = flat(MEASURED[framework]["cases"][case])
    here = found(framework, HERE[framework][case])[: len(wanted)]  # further entries are not tied
    assert len(here) == len(wanted)
    for one, other in zip(here, wanted, strict=True):
        assert (math.isnan(one) and math.isnan(other)) or one == pytest.approx(other, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("framework", HERE)
def test_it_is_the_same_version_and_every_case_is_here(framework: str) -> None:
    assert answers(framework).version == MEASURED[framework]["version"]
    assert set(HERE[framework]) == set(MEASURED[framework]["cases"])
