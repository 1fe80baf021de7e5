"""Explicit spellings: the convention belongs to the call, and nothing around it matters."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
import torch.nn.functional as F

import subgrad
from subgrad import functional, nn
from subgrad.kinks import KINKS
from subgrad.kinks.sets import Jump

GOVERNED = list(dict.fromkeys(kink.name for kink in KINKS if not isinstance(kink.set, Jump)))
X = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0])
COTANGENT = torch.tensor([1.0, -2.0, -0.5, 5.0, 6.0])


def gradient(function: object) -> list[float]:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(function(x), x, COTANGENT)[0].tolist()


def test_there_is_a_spelling_for_every_row() -> None:
    assert set(GOVERNED) <= set(functional.__all__)
    assert all(callable(getattr(functional, name)) for name in functional.__all__)


@pytest.mark.parametrize(
    ("convention", "wanted"),
    [
        ("min-norm", [0.0, 0.0, -0.5, 0.0, 0.0]),
        ("pass-through", [0.0, -2.0, -0.5, 5.0, 0.0]),
        ("mean", [0.0, -1.0, -0.5, 2.5, 0.0]),
        (subgrad.Convention("torch", clamp=0.25), [0.0, -0.5, -0.5, 1.25, 0.0]),
    ],
    ids=str,
)
def test_a_call_takes_its_own_convention_whatever_is_in_force(convention: str, wanted: list[float]) -> None:
    with subgrad.use("right"):
        assert gradient(lambda x: functional.clamp(x, 0, 6, convention=convention)) == wanted
        assert gradient(torch.relu) == [0.0, -2.0, -0.5, 5.0, 6.0]
    assert gradient(lambda x: functional.clamp(x, 0, 6, convention=convention)) == wanted


def test_the_default_is_the_least_element() -> None:
    assert gradient(lambda x: functional.clip(x, 0, 6)) == [0.0, 0.0, -0.5, 0.0, 0.0]
    assert gradient(lambda x: functional.maximum(x, torch.zeros(()))) == [0.0, 0.0, -0.5, 5.0, 6.0]


def test_signatures_are_those_of_torch_and_the_convention() -> None:
    assert list(inspect.signature(functional.clamp).parameters) == ["input", "min", "max", "convention"]
    torch_own = list(inspect.signature(F.hardtanh).parameters)
    assert list(inspect.signature(functional.hardtanh).parameters) == [*torch_own, "convention"]


@pytest.mark.parametrize("name", GOVERNED)
def test_docs_say_what_happens_at_each_kink(name: str) -> None:
    doc = getattr(functional, name).__doc__
    assert all(f"{kink.place}: {kink.set}" in doc for kink in KINKS[name])


def test_an_unknown_convention_is_refused_and_nothing_stays_in_force() -> None:
    with pytest.raises(ValueError, match="Did you mean 'min-norm'"):
        functional.relu(X, convention="minnorm")


MODULES = [
    (nn.Hardtanh(0, 6, convention="mean"), torch.nn.Hardtanh(0, 6), [0.0, -1.0, -0.5, 2.5, 0.0]),
    (nn.ReLU6(convention="mean"), torch.nn.ReLU6(), [0.0, -1.0, -0.5, 2.5, 0.0]),
    (nn.ReLU(convention="right"), torch.nn.ReLU(), [0.0, -2.0, -0.5, 5.0, 6.0]),
    (nn.LeakyReLU(2.0), torch.nn.LeakyReLU(2.0), [2.0, -2.0, -0.5, 5.0, 6.0]),
]


@pytest.mark.parametrize(("ours", "theirs", "wanted"), MODULES, ids=lambda each: type(each).__name__)
def test_modules_carry_their_convention(ours: torch.nn.Module, theirs: torch.nn.Module, wanted: list[float]) -> None:
    assert isinstance(ours, type(theirs))
    assert torch.equal(ours(X), theirs(X))
    for copied in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        with subgrad.use("left"):
            assert gradient(copied) == wanted


@pytest.mark.parametrize(("ours", "theirs", "wanted"), MODULES, ids=lambda each: type(each).__name__)
def test_modules_share_state_dicts_with_torch(
    ours: torch.nn.Module, theirs: torch.nn.Module, wanted: list[float]
) -> None:
    def network(activation: torch.nn.Module) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(3, 4), activation)

    saved = network(theirs).state_dict()
    assert list(network(ours).state_dict()) == list(saved)
    network(ours).load_state_dict(saved)


@pytest.mark.parametrize(
    "module", [nn.ReLU(inplace=True, convention="mean"), nn.ReLU6(True, convention="mean")], ids=str
)
def test_modules_work_in_place(module: torch.nn.Module) -> None:
    x = torch.zeros(2, requires_grad=True)
    y = x * 1.0
    assert module(y) is y
    assert torch.autograd.grad(y, x, torch.tensor([2.0, -4.0]))[0].tolist() == [1.0, -2.0]


def test_a_module_says_its_convention() -> None:
    assert repr(nn.Hardtanh(0, 6)) == "Hardtanh(min_val=0, max_val=6, convention=min-norm)"
    assert repr(nn.ReLU(convention="right")) == "ReLU(convention=right)"
