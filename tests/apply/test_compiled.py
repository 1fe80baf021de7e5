"""Compiled code takes the convention's element, and no graph or cache serves that of another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fresh import COMPILER, run_fresh
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

import subgrad
from subgrad.apply import dispatch
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples

pytestmark = pytest.mark.compiled

X = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0])
COTANGENT = torch.tensor([1.0, -2.0, -0.5, 5.0, 6.0])


def function(x: Tensor) -> Tensor:
    return torch.clamp(x, 0.0, 6.0) * 2


def gradient(function: object, convention: str = "torch") -> list[float]:
    leaf = X.clone().requires_grad_()
    with subgrad.use(convention):
        return torch.autograd.grad(function(leaf), leaf, COTANGENT)[0].tolist()


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("convention", ["min-norm", "torch-2.13", "mean"])
def test_every_row_compiles_whole_and_gives_the_eager_gradient(convention: str) -> None:
    """All rows in one graph: compiling each alone would take minutes and show no more."""
    # Inductor itself cannot take rrelu_with_noise; F.rrelu, which it can, comes last.
    ops = [op for op in KINKS.entrywise if op != "rrelu_with_noise"]
    calls = [(op, call) for op in ops for call in samples(op, torch.float32)]

    def outputs(inputs: list[dict[str, Tensor]]) -> list[Tensor]:
        found = [overload(op)(**{**call, **tensors}) for (op, call), tensors in zip(calls, inputs, strict=True)]
        return [*found, torch.nn.functional.rrelu(inputs[0]["self"], 0.125, 0.375)]

    def gradients(run: object) -> list[Tensor]:
        inputs = [
            {name: value.clone().requires_grad_() for name, value in call.items() if isinstance(value, Tensor)}
            for _, call in calls
        ]
        with subgrad.use(convention):
            found = run(inputs)
        leaves = [leaf for each in inputs for leaf in each.values()]
        cotangents = [torch.linspace(-1.5, 2.75, out.numel()) for out in found]
        return [*found, *torch.autograd.grad(found, leaves, cotangents)]

    eager = gradients(outputs)
    compiled = gradients(torch.compile(outputs, fullgraph=True))
    torch.testing.assert_close(compiled, eager, equal_nan=True)


def test_a_function_compiled_once_gives_each_convention_its_own_gradient() -> None:
    dispatch.install()  # what is compiled before the last kernel is registered is compiled once more
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for convention in ("mean", "right", "mean", "torch", "left", "right", "torch"):
        assert gradient(compiled, convention) == gradient(function, convention)
    assert counter.frame_count == 4


def test_a_graph_compiled_before_the_first_use_is_compiled_once_more() -> None:
    program = """
import torch, subgrad
def f(x): return torch.clamp(x, 0.0, 6.0)
c = torch.compile(f, fullgraph=True, backend="aot_eager")
x = torch.tensor([0.0, 6.0], requires_grad=True)
c(x)
with subgrad.use("mean"):
    y = c(x)
print(torch.autograd.grad(y, x, torch.tensor([1.0, 3.0]))[0].tolist())
"""
    assert _run(program) == "[0.5, 1.5]"


def test_a_graph_without_a_guard_is_compiled_once_more_for_a_convention_that_changes_it() -> None:
    program = """
import torch, subgrad
from torch._dynamo.testing import CompileCounterWithBackend
counter = CompileCounterWithBackend("aot_eager")
c = torch.compile(torch.relu, fullgraph=True, backend=counter)
x = torch.tensor([0.0, 6.0], requires_grad=True)
for convention in ("min-norm", "right", "min-norm", "mean", "right", "torch"):
    with subgrad.use(convention):
        y = c(x)
    print(torch.autograd.grad(y, x, torch.tensor([1.0, 3.0]))[0].tolist(), counter.frame_count)
"""
    zero, one, half = "[0.0, 3.0]", "[1.0, 3.0]", "[0.5, 3.0]"
    assert _run(program).splitlines() == [f"{zero} 1", f"{one} 2", f"{zero} 3", f"{half} 4", f"{one} 4", f"{zero} 5"]


def test_the_first_use_may_be_inside_a_compiled_function() -> None:
    program = """
import torch, subgrad
def f(x): return subgrad.functional.clamp(x, 0, 6, convention="mean") + torch.clamp(x, 0, 6)
def g(x): return torch.relu(x)
f, g = (torch.compile(each, fullgraph=True, backend="aot_eager") for each in (f, g))
x = torch.tensor([0.0, 6.0], requires_grad=True)
g(x), f(x)
with subgrad.use("left"):
    y = [f(x), g(x)]
print([torch.autograd.grad(each, x, torch.tensor([1.0, 3.0]))[0].tolist() for each in y])
with subgrad.use("right"):
    y = [f(x), g(x)]
print([torch.autograd.grad(each, x, torch.tensor([1.0, 3.0]))[0].tolist() for each in y])
"""
    assert _run(program) == "[[0.5, 4.5], [0.0, 3.0]]\n[[1.5, 1.5], [1.0, 3.0]]"


def test_the_cache_tag_of_the_user_is_kept() -> None:
    with torch.compiler.config.patch(cache_key_tag="mine"):
        assert gradient(torch.compile(function, fullgraph=True), "mean") == gradient(function, "mean")
        assert torch.compiler.config.cache_key_tag == "mine"
    assert torch.compiler.config.cache_key_tag == ""


PROCESS = """
import sys, torch
functions = {"clamp": lambda x: torch.clamp(x, 0.0, 6.0), "relu": lambda x: torch.relu(x)}
x = torch.tensor([0.0, 3.0, 6.0], requires_grad=True)
convention, *names = sys.argv[1:]
for name in names:
    compiled = torch.compile(functions[name], fullgraph=True)
    if convention == "plain":
        y = compiled(x)
    else:
        import subgrad
        with subgrad.use(convention):
            y = compiled(x)
    print(torch.autograd.grad(y, x, torch.tensor([2.0, 3.0, 4.0]))[0].tolist())
"""


def test_processes_that_share_a_cache_folder_never_share_gradients() -> None:
    """One with and one without a convention, in both orders: clamp is compiled plain first, relu is not."""
    native = str(gradient_of_plain_clamp())
    assert _run(PROCESS, "plain", "clamp") == native
    assert _run(PROCESS, "mean", "clamp", "relu") == "[1.0, 3.0, 2.0]\n[1.0, 3.0, 4.0]"
    assert _run(PROCESS, "plain", "clamp", "relu") == f"{native}\n[0.0, 3.0, 4.0]"


def test_conventions_chosen_inside_keep_out_of_the_on_disk_cache() -> None:
    """That of AOTAutograd, which shows operators and not what we make of them; Inductor's own shows the latter."""

    def chosen(x: Tensor) -> Tensor:
        with subgrad.use("mean"):
            y = torch.clamp(x, 0.0, 6.0)
        return y + 10 * subgrad.functional.relu(x, convention="left")

    cached, counted = counters["aot_autograd"], ("autograd_cache_bypass", "autograd_cache_saved", "autograd_cache_hit")
    before = [cached[each] for each in counted]
    assert gradient(torch.compile(chosen, fullgraph=True)) == gradient(chosen)
    assert [cached[each] - was for each, was in zip(counted, before, strict=True)] == [1, 0, 0]


def gradient_of_plain_clamp() -> list[float]:
    x = torch.tensor([0.0, 3.0, 6.0], requires_grad=True)
    return torch.autograd.grad(torch.clamp(x, 0.0, 6.0), x, torch.tensor([2.0, 3.0, 4.0]))[0].tolist()


def _run(program: str, *arguments: str) -> str:
    """What it prints; all processes that a test starts share the folder of its cache."""
    done = run_fresh(program, *arguments, imported=COMPILER)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("around", ["mean", "torch"])
def test_our_own_code_is_never_compiled_between_broken_graphs(around: str) -> None:
    def broken(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        with subgrad.use("right"):
            return torch.relu(x - 0) * 2

    counter = CompileCounterWithBackend("aot_eager")
    assert gradient(torch.compile(broken, backend=counter), around) == gradient(broken, around)
    assert "where" not in "".join(graph.code for graph in counter.graphs)


@pytest.mark.parametrize("convention", ["pass-through", subgrad.Convention("min-norm", clamp=0.25)], ids=str)
def test_explicit_spellings_compile_whole_and_depend_on_nothing_around_them(
    convention: str | subgrad.Convention,
) -> None:
    counter = CompileCounterWithBackend("inductor")

    def both(x: Tensor) -> Tensor:
        return subgrad.functional.clamp(x, 0, 6, convention=convention) + torch.clamp(x, 0, 6)

    compiled = torch.compile(both, fullgraph=True, backend=counter)
    for around in ("left", "right", "left"):
        assert gradient(compiled, around) == gradient(both, around)
    assert counter.frame_count == 2


def test_modules_compile_whole() -> None:
    module = subgrad.nn.Hardtanh(0, 6, convention="mean")
    assert gradient(torch.compile(module, fullgraph=True)) == gradient(module) == [0.0, -1.0, -0.5, 2.5, 0.0]
