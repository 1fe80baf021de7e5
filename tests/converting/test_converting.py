"""`convert` gives a model a convention of its own, and `unconvert` takes it back."""

import copy
import io
import pickle
import re
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from each_module import WITH_COUNTERPART, Case
from torch import Tensor, nn

import subgrad


class Block(nn.Module):
    """Kinks in modules, functions, methods and operators of Python, and a child that has its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = nn.ReLU6()
        self.pinned = subgrad.nn.ReLU(convention="right")
        with torch.no_grad():
            self.linear.weight.copy_(torch.eye(4))
            self.linear.bias.zero_()

    def forward(self, x: Tensor, flip: bool = False) -> Tensor:
        if flip:
            x = -x
        y = self.act(self.linear(x)) + torch.relu(x) + x.clamp(-1.0, 1.0) + abs(x)
        return y + F.max_pool1d(self.pinned(x), 2).repeat_interleave(2, 1)


class Traceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool1d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(torch.relu(x)) + x.abs().amax(1, True)


X = torch.tensor([[0.0, 6.0, 1.0, -1.0], [0.0, 0.0, 2.0, 2.0]])


def gradients(model: Any, x: Tensor = X, **options: Any) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    y = model(leaf, **options)
    cotangent = torch.linspace(-1.0, 2.0, y.numel()).reshape(y.shape)
    return list(torch.autograd.grad(y, [leaf, *model.parameters()], cotangent))


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(torch.equal(*pair) for pair in zip(left, right, strict=True))


def under(convention: Any, model: nn.Module, **options: Any) -> list[Tensor]:
    with subgrad.use(convention):
        return gradients(model, **options)


CONVENTIONS = ["mean", "left", subgrad.Convention("torch", clamp=0.25, relu=0.75)]


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
@pytest.mark.parametrize("around", ["torch", "right"])
def test_a_converted_model_is_the_model_under_its_convention(convention: Any, around: str) -> None:
    model = nn.Sequential(Block(), nn.LeakyReLU(-0.5), nn.Hardshrink(0.1), Block())
    converted = subgrad.convert(model, convention)
    with subgrad.use(around):
        assert torch.equal(converted(X), model(X))
        assert same(gradients(converted), under(convention, model))


def test_python_of_the_model_still_decides() -> None:
    model = subgrad.convert(Block(), "mean")
    for flip in (False, True):
        assert same(gradients(model, flip=flip), under("mean", Block(), flip=flip))
    assert not same(gradients(model, flip=False), gradients(model, flip=True))


@pytest.mark.parametrize("case", WITH_COUNTERPART, ids=lambda case: case.name)
def test_modules_become_their_counterparts_and_again_themselves(case: Case) -> None:
    model = nn.ModuleDict({"it": case.theirs()})
    converted = subgrad.convert(model, "mean")
    assert type(converted["it"]) is getattr(subgrad.nn, case.name)
    assert torch.equal(converted["it"](*case.inputs), model["it"](*case.inputs))
    restored = subgrad.unconvert(converted)
    assert type(restored["it"]) is type(model["it"])
    assert vars(restored["it"]).keys() == vars(model["it"]).keys()


def test_a_copy_leaves_the_model_and_in_place_is_the_model() -> None:
    model = Block()
    parameters = list(model.parameters())
    converted = subgrad.convert(model, "mean")
    assert type(model) is Block
    assert type(model.act) is nn.ReLU6
    assert same(gradients(model), gradients(Block()))
    assert subgrad.convert(model, "mean", inplace=True) is model
    assert isinstance(model, Block)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert list(converted.state_dict()) == list(Block().state_dict())
    assert same(gradients(model), gradients(converted))


def test_unconvert_restores_and_leaves_what_was_spelled_out() -> None:
    model = nn.Sequential(Block(), nn.ReLU())
    for restored in (
        subgrad.unconvert(subgrad.convert(model, "mean")),
        subgrad.unconvert(subgrad.convert(copy.deepcopy(model), "mean", inplace=True), inplace=True),
    ):
        assert [type(each) for each in restored.modules()] == [type(each) for each in model.modules()]
        assert repr(restored) == repr(model)
        assert restored[0].pinned.convention == subgrad.Convention("right")
        assert same(gradients(restored), gradients(model))


def test_converting_again_takes_the_last_convention() -> None:
    model = subgrad.convert(subgrad.convert(Block(), "right"), "mean")
    assert same(gradients(model), under("mean", Block()))
    assert repr(subgrad.unconvert(model)) == repr(Block())


def test_an_unknown_convention_leaves_the_model() -> None:
    model = Block()
    with pytest.raises(ValueError, match="Did you mean 'mean'"):
        subgrad.convert(model, "meen", inplace=True)
    assert type(model.act) is nn.ReLU6


def test_copies_and_pickles_are_converted() -> None:
    model = subgrad.convert(nn.Sequential(Block(), nn.ReLU()), "mean")
    wanted = gradients(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for copied in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
        model[:],  # made by the class of the model
    ):
        assert same(gradients(copied), wanted)
        assert isinstance(copied, nn.Sequential)
    assert repr(subgrad.unconvert(pickle.loads(pickle.dumps(model)))) == repr(nn.Sequential(Block(), nn.ReLU()))


def test_hooks_stay() -> None:
    model, called = Block(), []
    model.act.register_forward_hook(lambda *_: called.append("act"))
    model.register_forward_pre_hook(lambda *_: called.append("block"))
    subgrad.convert(model, "mean", inplace=True)(X)
    assert called == ["block", "act"]


def test_graphs_of_fx_are_converted_and_restored() -> None:
    graph = torch.fx.symbolic_trace(Traceable())
    code = graph.code
    for convention in CONVENTIONS:
        converted = subgrad.convert(nn.Sequential(graph), convention)
        for copied in (converted, copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
            assert same(gradients(copied), under(convention, Traceable()))
        assert subgrad.unconvert(converted)[0].code == code
    assert graph.code == code


def test_what_fx_traces_of_a_converted_model_keeps_its_convention() -> None:
    model = subgrad.convert(nn.Sequential(Traceable(), nn.ReLU()), "mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = torch.fx.symbolic_trace(model)
    assert same(gradients(traced), under("mean", nn.Sequential(Traceable(), nn.ReLU())))


def test_a_converted_model_is_exported_as_plain_operators_with_one_warning() -> None:
    model = nn.Sequential(Traceable(), nn.ReLU(), nn.Hardtanh())
    plain = torch.export.export(model, (X,))
    with pytest.warns(UserWarning, match="takes the convention in force where it runs") as said:
        program = torch.export.export(subgrad.convert(model, "mean"), (X,))
    assert len([each for each in said if "subgrad" in str(each.message)]) == 1
    assert [str(node.target) for node in program.graph.nodes] == [str(node.target) for node in plain.graph.nodes]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_scripting_a_converted_model_says_what_to_do() -> None:
    model = subgrad.convert(Traceable(), "mean")
    with pytest.raises(RuntimeError, match=r"Give it subgrad.unconvert\(model\), which has the same ones"):
        torch.jit.script(model)
    torch.jit.script(subgrad.unconvert(model))


@pytest.mark.compiled
def test_a_converted_model_compiles_without_a_break() -> None:
    model = subgrad.convert(nn.Sequential(Traceable(), nn.ReLU6()), "mean")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with subgrad.use("right"):
        assert same(gradients(compiled), gradients(model))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_table_says_what_changed_and_what_was_not_reached() -> None:
    scripted = torch.jit.script(nn.ReLU())
    replaced = nn.ReLU()
    replaced.forward = torch.relu  # type: ignore[method-assign]
    graph = torch.fx.symbolic_trace(lambda x: F.triplet_margin_loss(x.relu(), x, x))
    model = subgrad.convert(nn.ModuleList([Block(), scripted, replaced, graph, nn.Linear(2, 2), Traceable()]), "mean")
    table = [re.split(r"  +", line) for line in str(subgrad.conversion(model)).splitlines()]
    assert table == [
        ["module", "class", "convention", "what"],
        ["(model)", "ModuleList", "mean", "its code"],
        ["0", "Block", "mean", "its code: relu, clamp, abs, max_pool1d"],
        ["0.act", "ReLU6", "mean", "subgrad.nn.ReLU6"],
        ["0.pinned", "ReLU", "right", "subgrad.nn.ReLU"],
        ["3", "GraphModule", "mean", "its graph: relu"],
        ["5", "Traceable", "mean", "its code: relu, abs, amax"],
        ["5.pool", "MaxPool1d", "mean", "subgrad.nn.MaxPool1d"],
        ["1", "RecursiveScriptModule", "not reached", "TorchScript holds operators alone"],
        ["2", "ReLU", "not reached", "its forward was replaced by that of something else"],
        ["3", "GraphModule", "not reached", "in its graph: triplet_margin_loss"],
        [""],
        ["Methods other than forward, called from outside, take the convention in force around them."],
    ]


def test_a_model_that_was_not_converted_is_listed_as_such() -> None:
    found = subgrad.conversion(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    assert found.reached == ()
    assert [(each.path, each.what) for each in found.unreached] == [("0", "not converted")]


KINKED_INSIDE = {
    "PairwiseDistance": (nn.PairwiseDistance(p=1.0, eps=0.0), (X, X.roll(1, 0))),
    "RNNCell": (nn.RNNCell(4, 3, nonlinearity="relu", bias=False), (torch.zeros(2, 4), torch.zeros(2, 3))),
    "RNN": (nn.RNN(4, 3, nonlinearity="relu", bias=False), (torch.zeros(2, 1, 4),)),
    "TransformerEncoderLayer": (nn.TransformerEncoderLayer(4, 1, 8, 0.0, bias=False), (torch.zeros(2, 1, 4),)),
    "TripletMarginLoss": (nn.TripletMarginLoss(1.0, p=1.0), (X, X + 1, X + 1)),
}


@pytest.mark.parametrize("name", KINKED_INSIDE)
def test_modules_of_torch_with_kinks_inside_are_reached_on_their_own(name: str) -> None:
    module, inputs = KINKED_INSIDE[name]
    converted = subgrad.convert(nn.ModuleDict({"it": module}), "right")["it"]

    def gradient(run: Any) -> list[Tensor]:
        leaves = [each.clone().requires_grad_() for each in inputs]
        result = run(*leaves)
        result = result[0] if isinstance(result, tuple) else result
        cotangent = torch.linspace(-1.0, 2.0, result.numel()).reshape(result.shape)
        found = torch.autograd.grad(result, [*leaves, *run.parameters()], cotangent, allow_unused=True)
        return [torch.zeros(()) if each is None else each for each in found]

    with subgrad.use("right"):
        wanted = gradient(module)
    assert same(gradient(converted), wanted)
