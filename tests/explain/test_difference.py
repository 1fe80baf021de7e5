"""Why two expressions differ: the published case entry by entry, and random pairs whose reasons add up."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import subgrad
from subgrad.conventions import CHOICES
from subgrad.explain import watch
from subgrad.explain.difference import Difference, difference
from subgrad.explain.points import point
from subgrad.explain.profile import profiles
from subgrad.explain.program import Subject
from subgrad.explain.watch import Switch, run
from subgrad.report import explain_difference

# The published question: relu against clamp(min=0) in a small network.
NETWORK = ("((F.relu(x @ w1) @ w2 - 1)**2).sum()", "((torch.clamp(x @ w1, min=0) @ w2 - 1)**2).sum()")
AT = ("x=[[3,2,1],[1,0,2],[4,1,2],[0,0,1]]", "w1=[[1,2],[0,1],[4,0]]", "w2=[[-1,1],[-2,3]]")


def of(first: str, second: str, *at: str, wrt: tuple[str, ...] = ()) -> Difference:
    return difference(first, second, point(at), wrt)


@pytest.fixture(scope="module", params=[torch.float64, torch.float32])
def network(request: pytest.FixtureRequest) -> Difference:
    return difference(*NETWORK, point(AT, request.param), ("w1", "w2"), request.param)


class TestPublishedCase:
    def test_gradients_differ_in_one_entry_by_minus_38(self, network: Difference) -> None:
        (reason,) = [each for each in network.reasons if "torch-2.13" in each.conventions]
        ((gap),) = reason.gaps
        assert (gap.name, gap.index, gap.first - gap.second) == ("w1", (2, 1), -38.0)

    def test_the_difference_is_one_entry_of_clamp(self, network: Difference) -> None:
        (reason,) = [each for each in network.reasons if "torch-2.13" in each.conventions]
        (cause,) = reason.causes
        assert (cause.side, cause.hit.source, cause.hit.operator) == ("B", "torch.clamp(x @ w1, min=0)", "clamp")
        assert [entry.index for entry in cause.hit.entries] == [(3, 1)]
        assert cause.cotangent == 38.0
        assert cause.effects == (("w1", (2, 1), 38.0),)
        assert cause.hit.picks["torch-2.13"] == {"self": 1.0}
        assert cause.hit.picks[str(reason.reference)] == {"self": 0.0}
        assert reason.is_complete
        assert not reason.in_turn

    def test_the_entry_is_the_one_that_is_zero(self, network: Difference) -> None:
        x, w1 = (torch.tensor(network.at[name].nested()) for name in ("x", "w1"))
        assert (x @ w1 == 0).nonzero().tolist() == [[3, 1]]

    def test_conventions_that_treat_both_alike_agree(self, network: Difference) -> None:
        assert {"min-norm", "documented", "torch-2.14", "left", "right", "mean"} <= set(network.agree)
        assert not {"torch-2.13", "pass-through"} & set(network.agree)

    def test_values_are_the_same_here_and_nearby(self, network: Difference) -> None:
        assert network.values[0] == network.values[1]
        assert network.nearby == 32

    def test_is_told_in_words(self, network: Difference) -> None:
        lines = explain_difference.text(network).splitlines()
        assert max(map(len, lines)) <= 80
        told = " ".join(" ".join(lines).split())
        assert "w1[2,1] 1260 1298 -38" in told
        assert "B: entry [3,1] of torch.clamp(x @ w1, min=0) lies on self == min (where self = 0)" in told
        assert "takes 1 in place of 0 out of [0, 1], times the cotangent 38: w1[2,1] by +38." in told
        assert "A: entry [3,1] of F.relu(x @ w1) lies on self == 0 and takes 0 under both." in told
        assert "that is the whole difference" in told


def test_a_switch_that_does_nothing_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_joined", lambda mask, of_switch, of_run: of_run)
    reasons = of(*NETWORK, *AT, wrt=("w1", "w2")).reasons
    assert ["torch-2.13" in each.conventions for each in reasons] == [True, False]
    assert reasons[1].conventions == ("jax",)
    assert all((each.causes, each.is_complete) == ((), False) for each in reasons)
    assert "not the whole difference" in " ".join(explain_difference.text(of(*NETWORK, *AT)).split())


def test_the_scalar_of_the_published_case() -> None:
    found = of("(F.relu(x) - 1)**2", "(torch.clamp(x, min=0) - 1)**2", "x=0")
    (reason,) = [each for each in found.reasons if "torch-2.13" in each.conventions]
    assert [(gap.first, gap.second) for gap in reason.gaps] == [(0.0, -2.0)]


def test_what_agrees_under_every_convention_has_no_reason() -> None:
    found = of("F.relu(x)", "F.relu6(x)", "x=[0, 1]")
    assert found.reasons == ()
    assert set(found.agree) == set(CHOICES)
    told = explain_difference.text(found)
    assert "The same gradient under every convention." in told


def test_elements_that_act_one_through_another_are_taken_in_turn() -> None:
    found = of("F.relu(F.relu(x)) - F.relu(x)", "0 * x", "x=0")
    (reason,) = [each for each in found.reasons if "mean" in each.conventions]
    assert (reason.in_turn, reason.is_complete) == (True, True)
    assert sum(move for cause in reason.causes for *_, move in cause.effects) == pytest.approx(-0.25)


def test_functions_that_differ_are_said_to() -> None:
    found = of("F.relu(x)", "x", "x=0")
    assert found.nearby < 32
    assert "Not the same function" in explain_difference.text(found)


def test_where_no_convention_makes_them_agree_none_is_blamed() -> None:
    found = of("F.relu(x) + x", "F.relu(x) - x", "x=0")
    assert found.agree == ()
    assert all(reason.reference is None and not reason.causes for reason in found.reasons)
    assert "no convention gives both the same gradient" in " ".join(explain_difference.text(found).split())


def test_a_nan_of_torch_is_traced_to_its_operator() -> None:
    found = of("torch.hypot(x, y)", "torch.stack([x, y]).norm()", "x=0", "y=0")
    reason = next(reason for reason in found.reasons if "torch" in reason.conventions)
    assert {cause.hit.operator for cause in reason.causes} == {"hypot"}
    assert reason.is_complete


def test_ties_inside_tensors_are_traced_to_their_entries() -> None:
    found = of("F.max_pool1d(x, 2).sum()", "x[:, 0::2].maximum(x[:, 1::2]).sum()", "x=[[1, 1, 2, 2, 0, 3]]")
    reason = next(reason for reason in found.reasons if "torch" in reason.conventions)
    assert [cause.hit.entries[0].index for cause in reason.causes if cause.side == "A"] == [(0, 0, 0), (0, 0, 1)]
    assert reason.is_complete


def test_profiles_are_along_the_entry_in_which_they_differ() -> None:
    inputs = point(AT)
    found = difference(*NETWORK, inputs, ("w1", "w2"))
    drawn = profiles(found, inputs, steps=2)
    assert [each.axis for each in drawn] == ["w1[2,1]"] * 2
    assert [each.picks["torch-2.13"] for each in drawn] == [1260.0, 1298.0]


class TestSwitches:
    """Single entries under another convention: against where written by hand, with torch's own operators."""

    def test_one_entry_of_many(self) -> None:
        inputs = point(["x=[0, 0, 0, 5]"])
        subject = Subject("(F.relu(x) * torch.tensor([1., 2, 3, 4])).sum()", inputs)
        mask = torch.tensor([False, True, False, False])
        found = run(subject.evaluation, inputs, ("x",), "min-norm", {0: Switch("right", mask)})
        assert found.gradients["x"].tolist() == [0.0, 2.0, 0.0, 4.0]
        assert float(found.value) == 20.0

    def test_an_infinite_neighbour_does_not_spill_over(self) -> None:
        inputs = point(["x=[0, 3]", "y=[0, 4]"])
        subject = Subject("(torch.hypot(x, y) * torch.tensor([1., 2.])).sum()", inputs)
        mask = torch.tensor([True, False])
        found = run(subject.evaluation, inputs, ("x", "y"), "torch", {0: Switch("min-norm", mask)})
        assert found.gradients["x"].tolist() == [0.0, 1.2]

    def test_a_call_that_writes_into_its_argument(self) -> None:
        inputs = point(["x=[0, 1]", "y=[0, 0]"])
        text = "F.margin_ranking_loss(x, y, torch.tensor([1., 1.]), reduction='sum')"
        subject = Subject(text, inputs)
        found = run(subject.evaluation, inputs, ("x",), "min-norm", {0: Switch("right", torch.tensor([True, False]))})
        assert found.gradients["x"].tolist() == [-1.0, 0.0]


# Random pairs: two spellings of the same functions, put together at random, at points full of kinks.
SPELLINGS = (
    ("F.relu({0})", "torch.clamp({0}, min=0)", "torch.maximum({0}, torch.tensor(0.))", "({0} * ({0} > 0))"),
    ("({0}).abs()", "torch.maximum({0}, -({0}))", "(F.relu({0}) + F.relu(-({0})))"),
    ("F.hardtanh({0})", "torch.clamp({0}, -1, 1)", "torch.minimum(F.threshold({0}, -1, -1), torch.tensor(1.))"),
    ("(2 * ({0}))", "({0} + ({0}))"),
)  # fmt: skip


def pair(draw: random.Random, depth: int) -> tuple[str, str]:
    """Two texts of one function of x."""
    if depth == 0:
        return ("x", "x")
    spellings = draw.choice(SPELLINGS)
    one, other = draw.choice(spellings), draw.choice(spellings)
    inner = pair(draw, depth - 1)
    return one.format(inner[0]), other.format(inner[1])


@pytest.mark.parametrize("seed", range(12))
def test_random_spellings_of_one_function_are_explained(seed: int) -> None:
    draw = random.Random(seed)
    first, second = pair(draw, draw.randint(1, 2))
    inputs = point(["x=[0, 1, -1, 0.5]"])
    weights = " * torch.tensor([1., -2., 3., 0.5])"
    texts = f"({first}{weights}).sum()", f"({second}{weights}).sum()"
    found = difference(*texts, inputs)
    assert found.values[0] == found.values[1]
    for reason in found.reasons:
        if reason.reference is None:
            continue
        assert reason.is_complete
        assert reason.causes
        for convention in (reason.reference, reason.conventions[0]):
            gradients = [torch.tensor(each[convention]["x"].entries) for each in found.gradients]
            wanted = [_of_python(text, convention) for text in texts]
            assert all(torch.equal(*each) for each in zip(gradients, wanted, strict=True))


def _of_python(text: str, convention: str) -> torch.Tensor:
    x = torch.tensor([0, 1, -1, 0.5], requires_grad=True)
    with subgrad.use(convention):
        (found,) = torch.autograd.grad(eval(text, {"torch": torch, "F": F}, {"x": x}), x)
    return found
