"""Explanations of one expression, held against torch, against conventions, and against what is known of functions."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import subgrad
from subgrad.conventions import CHOICES
from subgrad.explain.points import point
from subgrad.explain.profile import profile
from subgrad.explain.program import Explanation, explain
from subgrad.report import explain_text
from subgrad.report.terminal_plot import Mark, plot


def explained(text: str, *at: str, wrt: tuple[str, ...] = ()) -> Explanation:
    return explain(text, point(at), wrt)


def own(found: Explanation, name: str = "x") -> list[tuple[float, ...]]:
    return sorted(each[name].entries for each in found.own.elements)


# Programs with inputs on kinks; in Python the same, as functions of x.
PROGRAMS = {
    "F.relu(x) - F.relu(-x)": (lambda x: F.relu(x) - F.relu(-x), [0.0]),
    "(3 * x.clamp(min=0) - x.abs()).sum()": (lambda x: (3 * x.clamp(min=0) - x.abs()).sum(), [0.0, 1.0, -2.0]),
    "torch.maximum(x, torch.tensor(0.)).pow(2).sum() + x.amax()": (
        lambda x: torch.maximum(x, torch.tensor(0.0, dtype=x.dtype)).pow(2).sum() + x.amax(),
        [0.0, 1.0, 1.0],
    ),
    "(F.hardtanh(x) * F.relu6(3 * x)).sum()": (lambda x: (F.hardtanh(x) * F.relu6(3 * x)).sum(), [1.0, 2.0, -1.0]),
    "F.normalize(x, dim=0)[0] + x.norm(p=1)": (lambda x: F.normalize(x, dim=0)[0] + x.norm(p=1), [3.0, 0.0]),
    "torch.where(x > 0, x, 0 * x).sum()": (lambda x: torch.where(x > 0, x, 0 * x).sum(), [0.0, 1.0]),
    "F.max_pool1d(x.reshape((1, 4)), 2)": (lambda x: F.max_pool1d(x.reshape(1, 4), 2), [1.0, 1.0, 0.0, 2.0]),
}  # fmt: skip


@pytest.mark.parametrize("text", PROGRAMS)
def test_gradients_are_those_of_the_same_program_under_each_convention(text: str) -> None:
    function, at = PROGRAMS[text]
    found = explained(text, f"x={at}")
    for convention in CHOICES:
        x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
        with subgrad.use(convention):
            value = function(x).sum()
            (wanted,) = torch.autograd.grad(value, x)
        assert found.gradients[convention]["x"].entries == tuple(wanted.tolist())
        assert found.value == float(value)


def test_all_conventions_are_explained() -> None:
    assert list(explained("x", "x=0").gradients) == list(CHOICES)


class TestHits:
    def test_are_the_parts_that_lie_on_a_kink(self) -> None:
        found = explained("F.relu(x) - F.relu(-x) + F.relu(x + 1)", "x=0")
        assert [(hit.source, hit.start, hit.operator, hit.place, hit.set) for hit in found.hits] == [
            ("F.relu(x)", 0, "relu", "self == 0", "[0, 1]"),
            ("F.relu(-x)", 12, "relu", "self == 0", "[0, 1]"),
        ]

    def test_have_their_entries_and_what_is_there(self) -> None:
        (hit,) = explained("x.clamp(max=w).sum()", "x=[[0,2],[3,2]]", "w=[0,2]").hits[:1]
        assert [entry.index for entry in hit.entries] == [(0, 0), (0, 1), (1, 1)]
        assert [entry.given for entry in hit.entries][1] == {"self": 2.0, "max": 2.0}
        assert hit.count == 3

    def test_say_what_conventions_take(self) -> None:
        (hit,) = explained("torch.clamp(x, min=0)", "x=0").hits
        wanted = {"min-norm": 0.0, "documented": 0.0, "torch-2.13": 1.0, "torch-2.14": 0.0}
        wanted |= {"left": 0.0, "right": 1.0, "mean": 0.5, "pass-through": 1.0}
        assert {name: hit.picks[name]["self"] for name in wanted} == wanted
        assert set(hit.picks) == set(CHOICES)

    def test_are_comparisons_jumps_poles_and_ties_in_tensors_too(self) -> None:
        found = explained("torch.where(x > 0, x, 0 * x) + x.floor() + x.sqrt() + torch.stack([x, x]).amax()", "x=0")
        assert [hit.kind for hit in found.hits] == ["comparison", "jump", "pole", "joint"]

    def test_are_none_away_from_kinks(self) -> None:
        assert explained("F.relu(x) + x.sqrt()", "x=1").hits == ()

    def test_are_none_in_what_is_not_differentiated(self) -> None:
        assert explained("F.relu(y) * x", "x=1", "y=0", wrt=("x",)).hits == ()

    def test_inside_functions_carry_the_call_that_is_written(self) -> None:
        (hit,) = explained("F.margin_ranking_loss(x, y, torch.tensor([1.]))", "x=[0]", "y=[0]").hits
        assert (hit.source, hit.operator) == ("F.margin_ranking_loss(x, y, torch.tensor([1.]))", "clamp_min")


class TestOwn:
    @pytest.mark.parametrize(
        ("text", "at", "gradient"),
        [
            ("F.relu(x) - F.relu(-x)", 0, 1.0),
            ("F.relu(F.relu(x)) - F.relu(x)", 0, 0.0),
            ("F.relu(x) + torch.log1p(torch.exp(-x.abs()))", 0, 0.5),
            ("x * (x > 0) + torch.where(x < 0, x, 0 * x)", 0, 1.0),
            ("x if x > 0 else x.exp() - 1", 0, 1.0),
            ("x.exp()", 1, math.e),
        ],
    )
    def test_is_the_gradient_where_there_is_one(self, text: str, at: float, gradient: float) -> None:
        found = explained(text, f"x={at}")
        assert own(found) == [pytest.approx((gradient,), abs=1e-12)]

    def test_is_elements_on_a_kink_of_the_whole(self) -> None:
        found = explained("x.abs() + F.relu(y)", "x=0", "y=0")
        assert {each["x"].entries for each in found.own.elements} == {(-1.0,), (1.0,)}
        assert found.own.least is not None
        assert (found.own.least["x"].entries, found.own.is_convex) == ((0.0,), True)

    @pytest.mark.parametrize(
        ("text", "at", "part"), [("x.sqrt()", 0, "`x.sqrt()`"), ("2 * x.floor()", 1, "`x.floor()`")]
    )
    def test_is_refused_by_the_part_that_has_none(self, text: str, at: float, part: str) -> None:
        found = explained(text, f"x={at}").own
        assert found.elements == ()
        assert found.refused is not None
        assert part in found.refused
        assert ":1" not in found.refused
        assert ":2" not in found.refused

    def test_is_refused_where_the_value_is_not_finite(self) -> None:
        assert explained("x.log()", "x=0").own.refused == "Its value is -inf here."


def test_what_torch_cannot_differentiate_is_a_mistake_at_its_place() -> None:
    from subgrad.explain.parsing import Mistake

    with pytest.raises(Mistake, match="no gradient of this") as refused:
        explained("x + torch.heaviside(x, x)", "x=0")
    assert refused.value.why.startswith("Torch has no gradient of this")


def test_nothing_stays_in_force_and_inputs_are_left_alone() -> None:
    inputs = point(["x=[0, 1]"])
    before = inputs["x"].clone()
    with subgrad.use("right"):
        found = explain("F.relu(x).sum()", inputs)
        assert subgrad.active() == subgrad.Convention("right")
    assert torch.equal(inputs["x"], before)
    assert not inputs["x"].requires_grad
    assert found.gradients["min-norm"]["x"].entries == (0.0, 1.0)


class TestProfile:
    def test_is_along_the_entry_in_question(self) -> None:
        inputs = point(["x=[[1, 0], [2, 3]]"])
        found = explain("F.relu(x).sum()", inputs)
        drawn = profile(found, inputs, radius=0.5, steps=4)
        assert drawn is not None
        assert (drawn.axis, drawn.at) == ("x[0,1]", 0.0)
        assert drawn.places == (-0.5, -0.375, -0.25, -0.125, 0.125, 0.25, 0.375, 0.5)
        assert drawn.values == (6.0, 6.0, 6.0, 6.0, 6.125, 6.25, 6.375, 6.5)
        assert drawn.slopes == (0.0,) * 4 + (1.0,) * 4
        assert (drawn.picks["right"], sorted(drawn.own)) == (1.0, [0.0, 1.0])

    def test_is_none_without_entries(self) -> None:
        inputs = point(["x=[]"])
        assert profile(explain("x.sum()", inputs), inputs) is None


class TestText:
    TEXTS = (
        ("F.relu(x) - F.relu(-x)", ("x=0",)),
        ("x.clamp(0, 6)", ("x=[0, 3, 6]",)),
        ("x.sqrt()", ("x=0",)),
        ("((F.relu(x @ w) @ w - 1)**2).sum() + torch.maximum(x, w).sum()", ("x=[[0,0],[0,0]]", "w=[[0,1],[1,0]]")),
        ("F.hardswish(x) + F.hardsigmoid(x)", ("x=-3",)),
    )  # fmt: skip

    @pytest.mark.parametrize(("text", "at"), TEXTS)
    def test_fits_80_columns_and_a_screen(self, text: str, at: tuple[str, ...]) -> None:
        inputs = point(at)
        found = explain(text, inputs)
        lines = explain_text.text(found, profile(found, inputs)).splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 50

    def test_names_every_convention_with_its_gradient(self) -> None:
        shown = explain_text.text(explained("F.relu(x) - F.relu(-x)", "x=0")).splitlines()
        rows = shown[shown.index("gradient") :]
        assert any(row.split() == ["2", "right"] for row in rows)
        assert any(row.split() == ["1", "mean"] for row in rows)
        assert any(row.split(maxsplit=1) == ["1", "the expression's own"] for row in rows)

    def test_says_plainly_what_has_no_gradient(self) -> None:
        shown = " ".join(explain_text.text(explained("x.floor()", "x=1")).split())
        assert "It has no gradient of its own: The program jumps" in shown

    def test_says_that_many_entries_are_summed(self) -> None:
        assert "the sum of 2 entries, which is differentiated" in explain_text.text(explained("2 * x", "x=[1, 2]"))


class TestPlot:
    def test_puts_heights_where_they_are(self) -> None:
        lines = plot([0.0, 1.0, 3.0, 4.0], [Mark("o", 2.0)], 5)
        assert [line[12:] for line in lines] == ["    *", "   *", "  o", " *", "*"]

    def test_leaves_out_what_is_not_finite(self) -> None:
        lines = plot([math.inf, 1.0, math.nan, 2.0], [Mark("o", -math.inf)], 2)
        assert [line[12:] for line in lines] == ["    *", " *"]

    def test_of_a_flat_curve_is_a_line(self) -> None:
        assert [line[12:] for line in plot([2.0, 2.0], [], 3)] == ["", "* *", ""]
