"""Modules of `subgrad.nn` are those of `torch.nn` but for the element that they take, whatever is in force around."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from each_module import ARGUMENTS, CASES, WITH_COUNTERPART, Case
from torch import Tensor

import subgrad
from subgrad import nn

with_counterpart = pytest.mark.parametrize("case", WITH_COUNTERPART, ids=lambda case: case.name)
OWN = subgrad.Convention("mean", relu=0.25)


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(torch.equal(*pair) for pair in zip(left, right, strict=True))


def test_every_counterpart_is_offered() -> None:
    assert {each.__name__ for each in nn.COUNTERPARTS} | {"Clamp"} == set(nn.__all__)


@with_counterpart
def test_arguments_are_those_of_torch_and_the_convention(case: Case) -> None:
    parameters = inspect.signature(getattr(nn, case.name)).parameters
    theirs = inspect.signature(getattr(torch.nn, case.name)).parameters
    given = {name: each.default for name, each in parameters.items() if name != "convention"}
    deprecated = {"min_value", "max_value"}
    assert given == {name: each.default for name, each in theirs.items() if name not in deprecated}
    assert parameters["convention"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["convention"].default == "min-norm"


@with_counterpart
@pytest.mark.parametrize("convention", ["min-norm", "mean", "torch-2.13", OWN], ids=str)
def test_values_are_torchs_and_gradients_those_of_the_convention(case: Case, convention: Any) -> None:
    ours, theirs = case.ours(convention), case.theirs()
    assert isinstance(ours, type(theirs))
    assert torch.equal(ours(*case.inputs), theirs(*case.inputs))
    with subgrad.use(convention):
        wanted = case.gradients(theirs)
    for around in ("left", "torch"):
        with subgrad.use(around):
            assert same(case.gradients(ours), wanted)


@pytest.mark.parametrize("name", ["ReLU", "Hardtanh", "ELU", "PReLU", "MaxPool2d", "L1Loss", "Clamp"])
def test_conventions_make_a_difference_at_these_inputs(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    other = "right" if name == "L1Loss" else "torch-2.13" if name == "MaxPool2d" else "mean"
    assert not same(case.gradients(case.ours("min-norm")), case.gradients(case.ours(other)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_copies_carry_the_convention(case: Case) -> None:
    module = case.ours("mean")
    wanted = case.gradients(module)
    for copied in (copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(copied) is getattr(nn, case.name)
        assert repr(copied) == repr(module)
        assert "convention=mean" in repr(module)
        assert same(case.gradients(copied), wanted)


@with_counterpart
def test_state_goes_both_ways(case: Case) -> None:
    ours, theirs = case.ours(), case.theirs()
    for source, target in ((ours, theirs), (theirs, ours)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.normal_()
        target.load_state_dict(source.state_dict())
        assert same(list(target.parameters()), list(source.parameters()))
    assert list(ours.state_dict()) == list(theirs.state_dict())


IN_PLACE = [name for name in nn.__all__ if "inplace" in inspect.signature(getattr(nn, name)).parameters]


@pytest.mark.parametrize("name", IN_PLACE)
def test_they_work_in_place(name: str) -> None:
    arguments = () if name == "LeakyReLU" else ARGUMENTS.get(name, ())  # in place torch takes no negative slope
    case = next(case for case in CASES if case.name == name)

    def on_a_copy(module: torch.nn.Module) -> Callable[[Tensor], Tensor]:
        def function(x: Tensor) -> Tensor:
            y = x * 1.0
            assert module(y) is y
            return y

        return function

    ours = getattr(nn, name)(*arguments, inplace=True, convention="mean").eval()
    theirs = getattr(torch.nn, name)(*arguments, inplace=True).eval()
    with subgrad.use("mean"):
        wanted = case.gradients(on_a_copy(theirs))
    assert same(case.gradients(on_a_copy(ours)), wanted)


def test_indices_are_torchs() -> None:
    x = CASES[nn.__all__.index("MaxPool2d")].inputs[0].requires_grad_()
    for ours, theirs in zip(
        nn.MaxPool2d(2, return_indices=True)(x), F.max_pool2d(x, 2, return_indices=True), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_random_slopes_are_torchs_while_it_trains() -> None:
    x = torch.linspace(-3.0, 0.0, 64)
    ours, theirs = nn.RReLU(convention="mean").train(), torch.nn.RReLU().train()
    torch.manual_seed(1)
    result = ours(x)
    torch.manual_seed(1)
    assert torch.equal(result, theirs(x))


EVERY_HALF = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)


@pytest.mark.parametrize("convention", ["min-norm", "mean", "left", "right", "documented", "torch-2.14"])
def test_hardtanh_relu6_and_clamp_are_one_function_at_every_half_number(convention: str) -> None:
    """Values and gradients, to the bit: infinities, nan and both zeros among them."""
    cotangent = torch.linspace(-2.0, 3.0, len(EVERY_HALF)).half()

    def bits(module: torch.nn.Module) -> list[Tensor]:
        x = EVERY_HALF.clone().requires_grad_()
        y = module(x)
        return [y.detach().view(torch.int16), torch.autograd.grad(y, x, cotangent)[0].view(torch.int16)]

    wanted = bits(nn.Hardtanh(0.0, 6.0, convention=convention))
    for module in (nn.ReLU6(convention=convention), nn.Clamp(0.0, 6.0, convention=convention)):
        assert same(bits(module), wanted)


# Compiled, torch makes them of clamps before anything can be chosen, and `mean` is not theirs but that of the clamps.
DECOMPOSED = ("MultiMarginLoss", "MultiLabelMarginLoss")


@pytest.mark.compiled
def test_compiled_they_take_their_own_convention_whatever_is_in_force() -> None:
    """In one graph, and without a break."""
    cases = [case for case in CASES if case.name not in DECOMPOSED]
    modules = torch.nn.ModuleList(case.ours("mean") for case in cases)
    inputs = [tuple(x.clone().requires_grad_(x.is_floating_point()) for x in case.inputs) for case in cases]
    leaves = [each for each in (*[x for given in inputs for x in given], *modules.parameters()) if each.requires_grad]

    def everything(inputs: list[tuple[Tensor, ...]]) -> list[Tensor]:
        return [module(*given) for module, given in zip(modules, inputs, strict=True)]

    def gradients(function: Any) -> tuple[Tensor, ...]:
        results = function(inputs)
        cotangents = [torch.linspace(-1.0, 2.0, y.numel()).reshape(y.shape) for y in results]
        return torch.autograd.grad(results, leaves, cotangents, allow_unused=True, materialize_grads=True)

    wanted = gradients(everything)
    compiled = torch.compile(everything, backend="aot_eager", fullgraph=True)
    with subgrad.use("left"):
        found = gradients(compiled)
    assert all(torch.allclose(*pair) for pair in zip(found, wanted, strict=True))
