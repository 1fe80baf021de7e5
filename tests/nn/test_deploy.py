"""What is exported, traced or scripted holds operators of torch; what can be trained keeps a convention, or warns."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from each_module import CASES
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import subgrad
from subgrad import functional, nn

# Their slopes are random, or what torch exports of them is.
EXPORTED = [case for case in CASES if case.name not in ("RReLU",)]


@contextmanager
def warned(times: int, what: str = "takes the convention in force where it runs") -> Iterator[None]:
    """Subgrad warns so often inside, with every warning shown."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    said = [str(each.message) for each in caught if str(each.message).startswith("subgrad:")]
    assert len(said) == times, said
    assert all(what in each for each in said)


class Everything(torch.nn.Module):
    def __init__(self, modules: list[torch.nn.Module]):
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)

    def forward(self, *inputs: tuple[Tensor, ...]) -> list[Tensor]:
        return [part(*given) for part, given in zip(self.parts, inputs, strict=True)]


class Clamped(torch.nn.Module):
    """What `Clamp` stands for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, -1.0, 2.0)


class Mixed(torch.nn.Module):
    """A module, a spelled-out call, and a block."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.act = nn.ReLU(convention="right")

    def forward(self, x: Tensor) -> Tensor:
        x = functional.clamp(self.act(self.linear(x)), -1, 1, convention="mean")
        with subgrad.use("right"):
            return F.max_pool1d(torch.relu(x - 0.5), 3) + x.abs().sum()


X = torch.tensor([[1.0, 2.0, 0.0], [0.5, -1.0, 0.0]])


def operators(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def slope_at_zero(function: Callable[[Tensor], Tensor]) -> float:
    x = torch.zeros(1, requires_grad=True)
    return torch.autograd.grad(function(x), x, torch.full((1,), 4.0))[0].item() / 4


def test_modules_are_exported_as_their_counterparts() -> None:
    inputs = tuple(case.inputs for case in EXPORTED)
    ours = Everything([case.ours("mean") for case in EXPORTED])
    theirs = Everything([Clamped() if case.name == "Clamp" else case.theirs() for case in EXPORTED])
    with warned(1):
        program = torch.export.export(ours, inputs)
    found = [each.replace("relu6", "hardtanh") for each in operators(program.graph)]  # torch.nn.ReLU6 calls the latter
    assert found == operators(torch.export.export(theirs, inputs).graph)
    for found, wanted in zip(program.module()(*inputs), ours(*inputs), strict=True):
        assert torch.equal(found, wanted)


PLAIN = ["linear", "relu", "clamp", "sub", "relu", "max_pool1d", "abs", "sum", "add"]


def names(kinds: list[str]) -> list[str]:
    return [kind.replace("::", ".").split(".")[1] for kind in kinds if kind.startswith("aten")]


@pytest.mark.parametrize("around", ["torch", "mean"])
@pytest.mark.parametrize("strict", [False, True])
def test_calls_and_blocks_are_exported_as_plain_operators(strict: bool, around: str) -> None:
    model = Mixed()
    with subgrad.use(around), warned(1):
        program = torch.export.export(model, (X,), strict=strict)
    assert names(operators(program.graph)) == PLAIN
    assert torch.equal(program.module()(X), model(X))


def test_a_convention_made_inside_is_exported_too() -> None:
    class Own(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with subgrad.use(subgrad.Convention("mean", relu=0.25)):
                return functional.relu(x, convention=subgrad.Convention("torch", relu=0.5))

    for strict in (False, True):
        with warned(1):
            assert names(operators(torch.export.export(Own(), (X,), strict=strict).graph)) == ["relu"]


def test_exported_programs_take_the_convention_where_they_run() -> None:
    with warned(1):
        program = torch.export.export(nn.ReLU(convention="mean"), (torch.zeros(1),)).module()
    for around, wanted in (("right", 1.0), ("torch", 0.0)):
        with subgrad.use(around):
            assert slope_at_zero(program) == wanted


def test_torchs_own_convention_needs_no_warning() -> None:
    with warned(0):
        torch.export.export(nn.ReLU(convention="torch"), (X,))
        torch.jit.trace(nn.ReLU(convention="torch"), X)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_traces_hold_plain_operators() -> None:
    model = Mixed()
    for _ in range(2):  # once a trace, although torch records twice to check what it recorded
        with warned(1):
            trace = torch.jit.trace(model, X)
    found = names([node.kind() for node in trace.inlined_graph.nodes()])
    assert found == PLAIN
    assert torch.equal(trace(X), model(X))


def scripted_calls(x: Tensor) -> Tensor:
    y = functional.clamp(x, -1.0, 2.0, convention="mean")
    return functional.relu(y) + functional.abs(y) + functional.leaky_relu(y, 0.1) + functional.maximum(x, y)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_what_is_scripted_holds_plain_operators_and_the_model_stays() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 6),
        nn.ReLU(convention="right"),
        nn.Hardtanh(0.0, 6.0),
        nn.Clamp(0.0, torch.nn.Parameter(X[0, 1])),
    )
    shown = repr(model)
    with warned(1):
        scripted = torch.jit.script(model)
    assert repr(model) == shown
    assert names([node.kind() for node in scripted.inlined_graph.nodes()]) == ["linear", "relu", "hardtanh", "clamp"]
    assert torch.equal(scripted(X), model(X))
    with warned(1):
        function = torch.jit.script(scripted_calls)
    assert torch.equal(function(X), scripted_calls(X))


UNSCRIPTABLE = {
    *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("fractional_max_pool2d", "fractional_max_pool3d", "norm", "cdist", "fake_quantize"),
    *("linalg_svdvals", "linalg_eigvalsh"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", functional.__all__)
def test_every_call_can_be_scripted_or_says_that_it_cannot(name: str) -> None:
    prepare = getattr(functional, name).__prepare_scriptable__
    if name in UNSCRIPTABLE:
        with pytest.raises(RuntimeError, match=r"does not go with torch.jit.script. Write torch's function under"):
            prepare()
    else:
        torch.jit.script(prepare())


def test_what_make_fx_records_has_the_values() -> None:
    model = Mixed()
    with warned(1):
        graph = make_fx(model)(X)
    assert all(target.startswith(("aten.", "<built-in function getitem>")) for target in operators(graph.graph))
    assert torch.equal(graph(X), model(X))


# torch.fx keeps conventions.


def gradients(model: Any, leaf: Tensor) -> Tensor:
    y = model(leaf)
    return torch.autograd.grad(y, leaf, torch.linspace(-1.0, 2.0, y.numel()).reshape(y.shape))[0]


def block(x: Tensor) -> Tensor:
    with subgrad.use("mean"):
        y = x.relu() + torch.clamp(x, max=1.0) + F.hardtanh(x) + abs(x) + F.max_pool1d(x, 3, return_indices=True)[0]
        with subgrad.use("torch"):
            y = y + F.relu6(x)
        with subgrad.use(subgrad.Convention("right", relu=0.25)):
            return y + torch.relu(x)


def test_fx_keeps_blocks() -> None:
    with warned(0):
        graph = torch.fx.symbolic_trace(block)
    leaf = torch.tensor([[0.0, 1.0, -1.0], [0.0, 0.0, 6.0]], requires_grad=True)
    wanted = gradients(block, leaf)
    for around in ("torch", "left"):
        with subgrad.use(around):
            assert torch.equal(gradients(graph, leaf), wanted)
            assert torch.equal(gradients(copy.deepcopy(graph), leaf), wanted)
    assert torch.equal(graph(leaf), block(leaf))


def test_fx_names_what_it_cannot_keep() -> None:
    def function(x: Tensor) -> Tensor:
        with subgrad.use("mean"):
            return F.triplet_margin_loss(x, x, x) + x.clamp_(0) + x.relu()

    with warned(1, "cannot be kept for triplet_margin_loss, clamp_. That takes"):
        torch.fx.symbolic_trace(function)


def test_feature_extractors_keep_conventions() -> None:
    extraction = pytest.importorskip("torchvision.models.feature_extraction")
    model = Mixed()
    with warned(0):
        extractor = extraction.create_feature_extractor(model, ["max_pool1d", "clamp"])
    leaf = X.clone().requires_grad_()
    for name, stop in (("clamp", 1), ("max_pool1d", 2)):

        def part(x: Tensor, stop: int = stop) -> Tensor:
            x = functional.clamp(model.act(model.linear(x)), -1, 1, convention="mean")
            with subgrad.use("right"):
                return F.max_pool1d(torch.relu(x - 0.5), 3) if stop == 2 else x

        assert torch.equal(gradients(lambda x, name=name: extractor(x)[name], leaf), gradients(part, leaf))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning:torch")
def test_quantisation_aware_training_of_graphs_keeps_conventions() -> None:
    quantize_fx = pytest.importorskip("torch.ao.quantization.quantize_fx")
    from torch.ao.quantization import disable_fake_quant, get_default_qat_qconfig_mapping

    model = Mixed().train()
    with warned(0):
        prepared = quantize_fx.prepare_qat_fx(copy.deepcopy(model), get_default_qat_qconfig_mapping(), (X,))
    prepared.apply(disable_fake_quant)
    assert any("FakeQuantize" in type(each).__name__ for each in prepared.modules())
    leaf = X.clone().requires_grad_()
    assert torch.allclose(gradients(prepared, leaf), gradients(model, leaf))


@pytest.mark.compiled
@pytest.mark.long
def test_ahead_of_time_compilation_runs_it(tmp_path: Any) -> None:
    model = torch.nn.Sequential(nn.ReLU(convention="right"), nn.Clamp(-0.5, torch.tensor([1.0, 1.5, 2.0])))
    with torch.no_grad(), warned(1):
        program = torch.export.export(model, (X,))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
        assert torch.equal(torch._inductor.aoti_load_package(package)(X), model(X))
