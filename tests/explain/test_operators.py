"""Explanations of operators: every row of the table, in words that fit a screen, and what torch changed."""

from __future__ import annotations

import re
from functools import cache

import pytest

import subgrad
from subgrad.conventions import CHOICES, Convention, Spot
from subgrad.explain.operators import Composite, Operator, is_operator, operator
from subgrad.explain.upstream import CHANGES, address, change_of
from subgrad.explain.words import WHAT
from subgrad.kinks import KINKS
from subgrad.kinks.composites import THROUGH
from subgrad.kinks.sets import Jump, Slopes
from subgrad.report import explain_operator

SOME = ("relu", "clamp", "fmax", "elu", "hypot", "max", "sqrt", "floor", "softshrink", "prelu", "clamp_min", "logit")


@cache  # measured once for all that is said of it
def found(name: str) -> Operator:
    explained = operator(name)
    assert isinstance(explained, Operator)
    return explained


@pytest.mark.parametrize("name", KINKS.names)
def test_every_operator_is_explained_in_80_columns(name: str) -> None:
    explained = found(name)
    lines = explain_operator.text(explained).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"{name}: {WHAT[name].partition(' ')[0]}")
    places = [place for row in (*explained.rows, *explained.jumps) for place in row.places]
    assert len(places) == len(KINKS[name])


@pytest.mark.parametrize("name", KINKS.names)
def test_every_operator_has_words(name: str) -> None:
    assert re.fullmatch(r"[^.]*(\.\d[^.]*)*", WHAT[name]), "no full stop: a sentence goes on"


def test_clamp_is_on_one_screen() -> None:
    assert len(explain_operator.text(found("clamp")).splitlines()) <= 48


@pytest.mark.parametrize("name", SOME)
def test_picks_are_what_conventions_take(name: str) -> None:
    for row in found(name).rows:
        taken = [convention for pick in row.picks for convention in pick.conventions]
        assert sorted(taken) == sorted(CHOICES)


def test_picks_of_corners_are_the_elements_of_the_table() -> None:
    for name in ("relu", "clamp", "hardswish", "leaky_relu"):
        kinks = iter([kink for kink in KINKS[name] if isinstance(kink.set, Slopes)])
        for row in [row for row in found(name).rows if row.overload == f"aten::{name}"]:
            spot = Spot.of(next(kinks), row.arguments, ("self",))
            for pick in row.picks:
                for convention in pick.conventions:
                    element = Convention(convention).element(spot)
                    assert element is None or pick.element == pytest.approx(element), (name, convention)


def test_clamp_by_hand() -> None:
    first, second, *_ = found("clamp").rows
    taken = {convention: pick.element["self"] for pick in first.picks for convention in pick.conventions}
    assert {name: taken[name] for name in ("torch-2.13", "torch-2.14", "mean", "left", "right")} == {
        "torch-2.13": 1.0, "torch-2.14": 0.0, "mean": 0.5, "left": 0.0, "right": 1.0,
    }  # fmt: skip
    assert (first.places, first.set, second.places) == (
        ("self == min, min < max",),
        "[0, 1]",
        ("self == max, min < max",),
    )


def test_a_constant_bound_is_told_apart() -> None:
    (row,) = [row for row in found("maximum").rows if row.overload == "aten::maximum"]
    assert [(pick.element, pick.conventions) for pick in row.constant] == [({"self": 0.0}, ("min-norm",))]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("clip", "clamp"),
        ("torch.clamp", "clamp"),
        ("F.relu", "relu"),
        ("torch.nn.functional.relu6", "relu6"),
        ("aten::clamp.Tensor", "clamp"),
        ("torch.linalg.vector_norm", "linalg_vector_norm"),
        ("torch.special.i0e", "special_i0e"),
        ("max.dim", "max"),
    ],
)
def test_names_are_found_as_users_write_them(text: str, name: str) -> None:
    assert found(text).name == name


@pytest.mark.parametrize("name", ["F.normalize", "F.margin_ranking_loss", "torch.quantile", "triplet_margin_loss"])
def test_functions_without_rows_are_explained_by_what_they_call(name: str) -> None:
    explained = operator(name)
    assert isinstance(explained, Composite)
    full = name if "." in name else f"F.{name}"
    assert {each.name for each in explained.calls} == {KINKS[op][0].name for op in THROUGH[full]}
    assert explain_operator.text(explained).startswith(f"{name} has no kinks of its own")


def test_an_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(KeyError, match="Did you mean 'relu'"):
        operator("reluu")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("clamp", True), ("F.relu", True), ("aten::max.dim", True), ("F.relu(x)", False), ("x + 1", False)],
)
def test_operators_and_expressions_are_told_apart(text: str, is_one: bool) -> None:
    assert is_operator(text) == is_one


class TestChanges:
    def test_are_of_the_operators_whose_column_changed(self) -> None:
        changed = {kink.name for kink in KINKS if isinstance(kink.torch, dict)}
        assert {name for change in CHANGES for name in change.operators} == changed

    def test_are_told_with_where_to_read(self) -> None:
        told = " ".join(explain_operator.text(found("clamp_min")).split())
        assert "Changed in 2.14." in told
        assert "pytorch/pytorch#191142" in told
        assert 'subgrad.use("torch-2.13")' in told

    def test_say_nothing_of_others(self) -> None:
        assert change_of("relu") is None
        assert "Changed" not in explain_operator.text(found("relu"))

    def test_references_have_addresses(self) -> None:
        assert address("pytorch/ao#4806") == "https://github.com/pytorch/ao/issues/4806"


def test_jumps_and_poles_have_no_picks() -> None:
    explained = found("logit")
    kinds = [isinstance(kink.set, Jump) for kink in KINKS["logit"]]
    assert (len(explained.rows), len(explained.jumps)) == (kinds.count(False), kinds.count(True))
    assert all(row.set.startswith("none") and not row.picks for row in explained.jumps)


def test_nothing_stays_in_force() -> None:
    with subgrad.use("left"):
        operator("maximum")
        assert subgrad.active() == subgrad.Convention("left")
