"""The atlas has every kink, and its numbers are those that were recorded and measured."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

import pytest
import recording
import torch
from recorded_atlas import RECORDED, recorded_atlas
from recorded_frameworks import answers

from subgrad.kinks import KINKS
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Pole
from subgrad.report.atlas_data import Answer, Atlas, Spot, shown
from subgrad.survey import places
from subgrad.survey.frameworks import PACKAGES, cases
from subgrad.survey.frameworks import places as places_of_cases


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return recorded_atlas()


@pytest.fixture(scope="module")
def spots(atlas: Atlas) -> dict[tuple[str, str, str], list[Spot]]:
    """By operation, place and set."""
    found: dict[tuple[str, str, str], list[Spot]] = {}
    for operation in atlas.operations:
        for spot in operation.spots:
            found.setdefault((operation.name, spot.where, spot.set), []).append(spot)
    return found


# What is in it.


def test_every_place_of_the_survey_has_its_entry(spots: dict[tuple[str, str, str], list[Spot]]) -> None:
    count = 0
    for place in places():
        place.element("torch")  # rrelu writes down the slopes that it has drawn, of which the set is made
        each, count = place.description, count + 1
        entries = spots[each.operator, each.place, each.set]
        form = each.overload.partition(".")[2]
        calls = {call.partition("(")[0] for spot in entries for call in (spot.call, *spot.also)}
        assert (f"{each.operator}.{form}" if form else each.operator) in calls
    assert count > 200


def test_every_operation_that_a_framework_answered_has_its_entry(atlas: Atlas) -> None:
    answered = {
        case["operator"]
        for name in PACKAGES
        for case, found in zip(cases(), answers(name).cases, strict=True)
        if found and case["kinks"]
    }
    assert answered <= {each.name for each in atlas.operations}


def test_every_spelling_that_was_recorded_at_a_kink_is_shown(atlas: Atlas) -> None:
    recorded = {
        (case["operator"], name, spelling)
        for name in PACKAGES
        for index, place in places_of_cases(cases())
        for case in [place.case]
        for spelling in answers(name).cases[index]
    }
    listed = {
        (operation.name, answer.framework, answer.spelling)
        for operation in atlas.operations
        for spot in operation.spots
        for answer in spot.answers
    }
    assert len(recorded) > 400
    assert recorded <= listed


def test_operations_with_a_set_come_before_those_without(atlas: Atlas) -> None:
    names = [each.name for each in atlas.operations]
    assert names.index("relu") < names.index("amax") < names.index("floor") < names.index("log")


# Its numbers.


def number_of(spot: Spot, source: str, spelling: str = "") -> tuple[float, ...] | None:
    (found,) = [each for each in spot.answers if each.source == source and each.spelling == spelling]
    return found.weights


@pytest.mark.parametrize("source", ["torch 2.13", "torch 2.14"])
def test_versions_of_torch_return_what_the_real_ones_were_recorded_to(source: str, atlas: Atlas) -> None:
    """Entry by entry: the recorded gradient over the cotangent, of a sample that meets the same numbers."""
    rows = json.loads((RECORDED / f"{source.replace(' ', '-')}.json").read_text())["rows"]
    entries = {
        (operation.name, spot.where, spot.set, spot.held): spot
        for operation in atlas.operations
        for spot in operation.spots
    }
    compared = Counter()
    for place in places():
        kink = place.kink
        if kink.op not in KINKS.entrywise or isinstance(kink.set, Pole) or place.call.get("training"):
            continue  # slopes that are drawn are others for an entry alone
        real = recorded_weights(place, rows[kink.op])
        if real is None:
            continue
        described = place.description
        held = tuple(sorted({*kink.set.candidates} - {*place.differentiated}))
        spot = entries[described.operator, described.place, described.set, held]
        found = number_of(spot, source)
        assert found is not None
        assert repr([shown(each) for each in found]) == repr([shown(each) for each in real]), (described, spot)
        compared[kink.name] += 1
    assert sum(compared.values()) > 60
    assert len(compared) > 20


def recorded_weights(place: Any, row: list[dict[str, list[str]]]) -> tuple[float, ...] | None:
    """Of the first entry of a recorded sample that meets the same numbers with a cotangent that is not 0."""
    kink, names = place.kink, place.differentiated
    for call, found in zip(samples(kink.op), row, strict=False):
        key = ",".join(names)
        if found.get(key, recording.REFUSED) == recording.REFUSED or not kink.applies(call):
            continue
        entries = [float.fromhex(each) for each in found[key]]
        hits = kink.hits(call).flatten()
        for entry in hits.nonzero().flatten().tolist():
            cotangent = recording.COTANGENT[entry % len(recording.COTANGENT)]
            if len(entries) == len(names) * hits.numel() and cotangent and is_met(place, call, entry):
                return tuple(entries[entry + hits.numel() * count] / cotangent for count in range(len(names)))
    return None


def is_met(place: Any, call: dict[str, Any], entry: int) -> bool:
    """Whether an entry of a sample has the numbers of a place."""
    for name, each in place.call.items():
        other = call.get(name)
        if isinstance(other, torch.Tensor):
            other = other.flatten()[entry if other.numel() > 1 else 0]
        if not (other is each is None or (other is not None and each is not None and bool(other == each))):
            return False
    return True


@pytest.mark.parametrize("framework", PACKAGES)
def test_frameworks_return_what_they_were_recorded_to(framework: str, atlas: Atlas) -> None:
    """Every weight of every spelling at every place, read from the record itself by what the page calls the entry."""
    record = json.loads((RECORDED / "frameworks" / f"{framework}.json").read_text())
    by_name = {operation.name: operation.spots for operation in atlas.operations}
    compared = 0
    for index, place in places_of_cases(cases()):
        for spelling, given in record["cases"][index]["spellings"].items():
            found = [
                (spot, answer)
                for spot in by_name[place.case["operator"]]
                for answer in spot.answers
                if spot.where == place.place and (answer.framework, answer.spelling) == (framework, spelling)
            ]
            assert found
            if "reverse" in given:
                same = [is_as_recorded(place, spot, answer, given["reverse"]) for spot, answer in found]
                refused = [answer for _, answer in found if "its values differ" in str(answer.failed)]
                assert any(same) or refused, (place, spelling)
                compared += any(same)
    assert compared > 40


def is_as_recorded(place: Any, spot: Spot, answer: Answer, reverse: dict[str, Any]) -> bool:
    if answer.weights is None:
        return False
    try:
        wanted = [weight_of(place, label, reverse) for label in spot.names]
    except (TypeError, IndexError, KeyError):  # a sample of another shape
        return False
    return repr([shown(each) for each in wanted]) == repr([shown(each) for each in answer.weights])


def weight_of(place: Any, label: str, reverse: dict[str, Any]) -> float:
    """``self[0, 2]`` of a recorded gradient, over the cotangent where it is one number."""
    name, _, rest = label.partition("[")
    found, cotangent = reverse[name], place.case["cotangent"]
    if place.entry is not None:
        return found[place.entry] / cotangent[place.entry]
    for position in filter(None, rest.removesuffix("]").split(", ")):
        found = found[int(position)]
    while isinstance(cotangent, list) and len(cotangent) == 1:
        (cotangent,) = cotangent
    return found / (1.0 if isinstance(cotangent, list) else cotangent)


def test_the_five_published_cases_read_as_published(spots: dict[tuple[str, str, str], list[Spot]]) -> None:
    (clamp, *_) = spots["clamp", "self == min", "[0, 1]"]
    assert (number_of(clamp, "torch 2.13"), number_of(clamp, "torch 2.14")) == ((1.0,), (0.0,))
    assert number_of(clamp, "jax", "jnp.clip") == (0.5,)
    assert number_of(clamp, "tensorflow", "tf.clip_by_value") == (1.0,)
    assert clamp.changed
    assert clamp.disagrees
    (absolute,) = spots["abs", "self == 0", "[-1, 1]"]
    assert number_of(absolute, "jax", "jnp.abs") == (1.0,)
    assert not absolute.changed
    (elu,) = spots["elu", "self == 0", "[1, 2]"]
    assert elu.breaks


def test_slopes_on_the_page_are_those_of_the_table(atlas: Atlas) -> None:
    compared = 0
    for operation in atlas.operations:
        for spot in operation.spots:
            interval = re.fullmatch(r"\[(.+), (.+)\]", spot.set)
            if interval and spot.curve and spot.curve.slopes:
                assert sorted(spot.curve.slopes) == pytest.approx(list(map(float, interval.groups())), abs=1e-4)
                assert spot.reach == pytest.approx(sorted(spot.curve.slopes), abs=1e-4)
                compared += 1
    assert compared > 40


def test_curves_are_the_values_of_the_operation(spots: dict[tuple[str, str, str], list[Spot]]) -> None:
    (swish,) = spots["hardswish", "self == 3", "[1, 1.5]"]
    assert swish.curve is not None
    for by, value in (*swish.curve.left, (0.0, swish.curve.value), *swish.curve.right):
        assert value == pytest.approx(float(torch.nn.functional.hardswish(torch.tensor(3.0 + by, dtype=torch.float64))))


def test_a_spelling_with_other_values_is_another_function(atlas: Atlas) -> None:
    """Of mlx leaky_relu is max(x, slope * x), which is another function where the slope is above 1."""
    (spot,) = [
        spot
        for operation in atlas.operations
        if operation.name == "leaky_relu"
        for spot in operation.spots
        if spot.call == "leaky_relu(negative_slope=2.0)"
    ]
    (found,) = [each for each in spot.answers if each.framework == "mlx"]
    assert found.weights is None
    assert "its values differ" in str(found.failed)


# What is marked.


def spot(*weights: tuple[float, ...], **given: Any) -> Spot:
    found = tuple(Answer("jax", "jax", str(number), each) for number, each in enumerate(weights))
    names = tuple("abcd"[: len(weights[0])])
    return Spot("a tie", "f", names, given.pop("set", "[0, 1]"), found, **{"reach": (0.0, 1.0), **given})


def test_what_is_no_element_is_known() -> None:
    def outside(found: Spot) -> list[bool]:
        return [found.is_outside(each) for each in found.answers]

    assert outside(spot((0.0,), (1.0,), (1.5,), (-0.1,), (math.nan,))) == [False, False, True, True, True]
    shares = spot((0.5, 0.5), (1.0, 0.0), (0.0, 0.0), (1.0, 1.0), set="simplex over self, other")
    assert outside(shares) == [False, False, True, True]
    assert outside(spot((0.5,), set="simplex over self, other", held=("other",))) == [False]
    ball = spot((0.6, 0.8), (1.0, 1.0), set="unit ball over self, other", reach=(-1.0, 1.0))
    assert outside(ball) == [False, True]
    assert outside(spot((math.nan,), (7.0,), set="none (jump)", reach=None)) == [False, False]


def test_versions_that_are_reproduced_do_not_make_a_disagreement() -> None:
    made = (Answer("torch", "torch 2.13", "", (1.0,)), Answer("torch", "torch 2.14", "", (0.0,)))
    found = Spot("self == 0", "f", ("self",), "[0, 1]", (*made, Answer("torch", "torch 2.15", "f", (0.0,))))
    assert found.changed
    assert not found.disagrees
