"""What was measured on real versions of torch by others than this project's survey: the survey finds the same.

Of the 130 cases of that table 118 are here, as expressions. The others are left out: rrelu is not among what they may
call, heaviside has no derivative, spectra of the identity depend on which of many bases a library returns, and of
cosine_similarity, multi_margin_loss, triplet_margin_loss, pdist, cdist with p=1 and grid_sample the table does not say
the point.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from subgrad.explain.points import point
from subgrad.explain.program import Subject
from subgrad.kinks import KINKS
from subgrad.survey import Place, changes, places
from survey.spellings import EXPRESSIONS, PLACES

MEASURED = json.loads((Path(__file__).parent / "kink_table.json").read_text())
VERSIONS = {"torch-2.13": "2.13.0", "torch-2.14": "2.14.1"}


# What the installed torch has no derivative of, though later ones do.
UNDERIVED = {"aminmax tie"} if torch.__version__ < "2.12" else set()
HERE = [case for case in EXPRESSIONS if case not in UNDERIVED]


def flat(given: Any) -> list[float]:
    return [number for each in given for number in flat(each)] if isinstance(given, list) else [float(given)]


def same(one: list[float], other: list[float]) -> bool:
    return torch.allclose(torch.tensor(one), torch.tensor(other), rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize("convention", VERSIONS)
@pytest.mark.parametrize("case", HERE)
def test_a_convention_gives_what_the_real_version_gave(case: str, convention: str) -> None:
    text, *at = EXPRESSIONS[case]
    gradients = Subject(text, point(at)).run(convention).gradients
    found = [number for each in gradients.values() for number in each.flatten().tolist()]
    wanted = flat(MEASURED[case][VERSIONS[convention]]["reverse"])
    assert same(found, wanted), f"{found}, not {wanted}"


@cache
def surveyed() -> tuple[Place, ...]:
    return tuple(place for place in places() if place.kink.op in KINKS.entrywise)


def place_of(case: str) -> Place:
    op, where, numbers, differentiated = PLACES[case]
    (found, *_) = [
        place
        for place in surveyed()
        if (place.kink.op, place.kink.place, place.differentiated) == (op, where, differentiated)
        if numbers.items() <= place.description.arguments.items() or not numbers
    ]
    return found


@pytest.mark.parametrize("case", PLACES)
def test_the_difference_that_the_survey_finds_is_that_of_the_real_versions(case: str) -> None:
    before, after = (flat(MEASURED[case][version]["reverse"]) for version in VERSIONS.values())
    found = list(changes(*VERSIONS, [place_of(case)]))
    assert bool(found) == (repr(before) != repr(after))
    for change in found:
        assert change.before is not None
        assert change.after is not None
        assert same(list(map(float, change.before.values())), before)
        assert same(list(map(float, change.after.values())), after)


@pytest.mark.parametrize("convention", VERSIONS)
@pytest.mark.parametrize("case", PLACES)
def test_every_place_has_the_element_of_the_real_version(case: str, convention: str) -> None:
    found = place_of(case).element(convention)
    assert found is not None
    assert same(list(map(float, found.values())), flat(MEASURED[case][VERSIONS[convention]]["reverse"]))


def test_what_changed_changed_by_what_the_survey_lists() -> None:
    """Cases that changed are of the operators that `survey --diff` lists, alone or inside of others."""
    before, after = VERSIONS.values()
    changed = {case for case in EXPRESSIONS if MEASURED[case][before]["reverse"] != MEASURED[case][after]["reverse"]}
    listed = {change.operator for change in changes(*VERSIONS, surveyed())}
    assert listed == {"clamp", "clamp_min", "clamp_max", "fmax", "fmin"}
    for case in HERE:
        text, *at = EXPRESSIONS[case]
        met = {KINKS[each.op][0].name for each in Subject(text, point(at)).run("torch").met if each.kinks}
        if case in changed:
            assert met & listed, case
    inside = changed - set(PLACES)
    assert inside == {
        *("clamp(x,T,T) x==lo<hi", "clamp(x,T,T) x==hi>lo"),  # of which the survey has places with other numbers
        *("margin_ranking @kink", "hinge_embedding(-1) @kink"),  # clamp_min
        *("clamp(min=0).sqrt()@0", "clamp(-1,1).acos()@1"),
        *("softplus hand (clamp+abs)@0", "max(x,0)+min(x,0)@0"),
    }


def test_where_forward_mode_was_another_the_convention_is_the_reverse_one() -> None:
    """What does not coincide with the table: conventions mean one element in all modes, and that is the reverse one."""
    otherwise = {
        (version, case)
        for case in PLACES
        for version, modes in MEASURED[case].items()
        if not same(flat(modes["reverse"]), flat(modes["forward"]))
    }
    assert otherwise == {
        ("2.13.0", "fmax tie"),
        ("2.13.0", "clamp(x,min=T0d no grad) tie"),
        ("2.13.0", "prelu(.25)@0"),
        ("2.14.1", "prelu(.25)@0"),
    }
    for case in ("fmax tie", "clamp(x,min=T0d no grad) tie"):
        finding = place_of(case).finding("torch-2.13")
        assert finding.chosen == finding.chosen_forward
