"""PyTorch's documented rule at every place of the survey, by programs of plain torch.

Where torch breaks it the failure is expected, strictly: the day it is mended, this says so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from subgrad.kinks.sets import Jump
from subgrad.report.repro import reproducer
from subgrad.survey import Finding, Place, places
from subgrad.survey.convexity import shape

# What torch breaks since 2.15, and how the function bends there.
BROKEN: dict[str, str] = json.loads((Path(__file__).parent / "broken.json").read_text())
LISTED = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 15)


def named(found: Iterable[Place]) -> dict[str, Place]:
    """Places by names: the call, where it is met, and a number where two share them."""
    names, seen = {}, Counter()
    for place in found:
        hidden = {*place.kink.set.candidates, "noise"}
        numbers = {name: value.item() if numel(value) == 1 else value for name, value in place.call.items()}
        given = [f"{name}={value}" for name, value in numbers.items() if name not in hidden and is_number(value)]
        name = f"{place.kink.op}({', '.join(given)}) at {place.kink.words} in {', '.join(place.differentiated)}"
        seen[name] += 1
        names[name if seen[name] == 1 else f"{name}, {seen[name]}"] = place
    return names


def numel(value: Any) -> int | None:
    return value.numel() if isinstance(value, torch.Tensor) else None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def is_function(place: Place) -> bool:
    """Not a jump, and not `rrelu` while it draws its slopes."""
    return not isinstance(place.kink.set, Jump) and not place.call.get("training")


PLACES = named(place for place in places() if is_function(place))


@cache
def measured(name: str) -> Finding:
    return PLACES[name].finding("torch")


@pytest.mark.parametrize("name", PLACES)
def test_torch_returns_the_documented_element(name: str, request: pytest.FixtureRequest) -> None:
    finding = measured(name)
    if finding.documented is None:
        pytest.skip("this torch has no derivative of it")
    if name in BROKEN if LISTED else finding.keeps_rule is False:
        broken = "torch breaks its documented rule there, as is listed"
        request.applymarker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=broken))
    program = reproducer(PLACES[name], finding)
    _, found = program.run()
    torch.testing.assert_close(found, program.expected, atol=1e-4, rtol=0)


@pytest.mark.skipif(not LISTED, reason="the list is of what torch breaks since 2.15")
def test_torch_breaks_its_rule_where_the_list_says() -> None:
    broken = [name for name in PLACES if measured(name).keeps_rule is False]
    assert {name: shape(PLACES[name]) for name in broken} == BROKEN
