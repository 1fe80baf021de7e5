"""`use` inside compiled functions: each kink has the convention of the code around it, in every trace of the graph."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import subgrad

pytestmark = pytest.mark.compiled

X = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0])
COTANGENT = torch.tensor([1.0, -2.0, -0.5, 5.0, 6.0])
OWN = subgrad.Convention("min-norm", clamp=0.25)


@subgrad.use("left")
def decorated(x: Tensor) -> Tensor:
    return torch.clamp(x, 0.0, 6.0)


def nested(x: Tensor) -> Tensor:
    before = torch.relu(x)
    with subgrad.use("mean"):
        mean = torch.clamp(x, 0.0, 6.0)
        with subgrad.use(OWN):
            own = torch.clamp(x, 0.0, 6.0)
        mean = mean + torch.relu(x)
    spelled = subgrad.functional.clamp(x, 0, 6, convention="pass-through")
    return before + 10 * mean + 100 * own + 1000 * decorated(x) + 10000 * spelled + 100000 * torch.relu(x)


def made_inside(x: Tensor) -> Tensor:
    with subgrad.use(subgrad.Convention("torch", clamp=0.5)):
        return torch.clamp(x, 0.0, 6.0)


def in_checkpoint(x: Tensor) -> Tensor:
    with subgrad.use("mean"):
        outer = checkpoint(torch.relu, x, use_reentrant=False)
    return outer + 10 * checkpoint(decorated, x, use_reentrant=False)


def broken(x: Tensor) -> Tensor:
    before = torch.relu(x)
    with subgrad.use(OWN):
        own = torch.clamp(x, 0.0, 6.0)
        torch._dynamo.graph_break()
        with subgrad.use("right"):
            right = torch.clamp(x, 0.0, 6.0)
            torch._dynamo.graph_break()
            right = right + torch.relu(x)
        own = own + torch.clamp(x, 0.0, 6.0)
    return before + 10 * own + 100 * right + 1000 * torch.relu(x)


def gradient(function: Callable[[Tensor], Tensor], around: str) -> list[float]:
    leaf = X.clone().requires_grad_()
    with subgrad.use(around):
        return torch.autograd.grad(function(leaf), leaf, COTANGENT)[0].tolist()


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("function", [nested, made_inside, in_checkpoint])
def test_each_kink_has_the_convention_of_the_code_around_it(function: Callable[[Tensor], Tensor]) -> None:
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for around in ("torch", "right", "torch"):
        assert gradient(compiled, around) == gradient(function, around)
        assert subgrad.active() == subgrad.Convention("torch")


def test_branches_choose_their_own() -> None:
    """`torch.cond` compiles its branches even when it is called by eager code, so that there is no eager reference."""

    def branching(x: Tensor) -> Tensor:
        with subgrad.use("mean"):
            return torch.cond(x.sum() > 0, decorated, torch.relu, (x,)) + torch.relu(x)

    def plain(x: Tensor) -> Tensor:
        with subgrad.use("mean"):
            return decorated(x) + torch.relu(x)

    assert gradient(torch.compile(branching, fullgraph=True, backend="aot_eager"), "right") == gradient(plain, "right")


def test_inductor_compiles_once_for_all_conventions_around_what_chooses_its_own() -> None:
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(decorated, fullgraph=True, backend=counter)
    for around in ("right", "mean", "torch"):
        assert gradient(compiled, around) == gradient(decorated, around)
    assert counter.frame_count == 1


def test_a_graph_may_break_inside() -> None:
    compiled = torch.compile(broken, backend="aot_eager")
    for around in ("mean", "torch"):
        assert gradient(compiled, around) == gradient(broken, around)


def test_what_raises_inside_leaves_nothing_in_force() -> None:
    def raising(x: Tensor) -> Tensor:
        with subgrad.use("mean"):
            torch.relu(x)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gradient(torch.compile(raising, backend="aot_eager"), "right")
    assert subgrad.active() == subgrad.Convention("torch")
    assert gradient(torch.compile(torch.relu, backend="aot_eager"), "torch")[1] == 0.0


@pytest.fixture
def quiet() -> object:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_backends_that_run_the_graph_as_it_is_are_refused() -> None:
    with pytest.raises(RuntimeError, match="needs a backend that compiles the gradient"):
        gradient(torch.compile(decorated, fullgraph=True, backend="eager"), "torch")
    assert subgrad.active() == subgrad.Convention("torch")


def test_regions_that_are_compiled_once_are_refused(quiet: None) -> None:
    @torch.compiler.nested_compile_region
    def region(x: Tensor) -> Tensor:
        return torch.relu(x)

    def function(x: Tensor) -> Tensor:
        with subgrad.use("mean"):
            return region(x) + region(x * 2)

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="compiled once, for all conventions"):
        gradient(torch.compile(function, fullgraph=True, backend="aot_eager"), "torch")


class TwoLayers(torch.nn.Module):
    """Both layers, and so both buckets of DDP, inside one `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        with subgrad.use("mean"):
            y = torch.relu(self.second(torch.relu(self.first(x))))
        return y + torch.relu(x)


def test_a_graph_that_is_split_inside_is_refused(quiet: None) -> None:
    """By DDP's own optimizer, which hands each bucket to the backend alone."""

    def buckets(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        return DDPOptimizer(1, aot_eager, first_bucket_cap=1).compile_fn(graph, inputs)

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="was split inside"):
        gradient(torch.compile(TwoLayers(), fullgraph=True, backend=buckets), "torch")


class Inside(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return decorated(x)


class Spelled(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return subgrad.functional.relu(x, convention="mean")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("module", [Inside, Spelled])
def test_exported_programs_hold_plain_operators(module: type[torch.nn.Module], strict: bool) -> None:
    with pytest.warns(UserWarning, match="An exported program takes the convention in force where it runs"):
        program = torch.export.export(module(), (X,), strict=strict)
    assert all(str(node.target).startswith("aten.") for node in program.graph.nodes if node.op == "call_function")


def test_exporting_leaves_the_cache_tag_alone() -> None:
    with subgrad.use("mean"):
        torch.export.export(torch.nn.ReLU(), (X.clone().requires_grad_(),))
    assert torch.compiler.config.cache_key_tag == ""


def test_a_failed_compilation_leaves_the_cache_tag_alone(quiet: None) -> None:
    def failing(graph: object, inputs: object) -> object:
        assert "mean" in torch.compiler.config.cache_key_tag
        raise KeyError("mine")

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="mine"):
        gradient(torch.compile(torch.relu, backend=failing), "mean")
    assert torch.compiler.config.cache_key_tag == ""


def test_shapes_that_are_symbols_reach_the_kernels_that_torch_keeps_for_them() -> None:
    """Its own kernel for softshrink is written in Python there."""
    compiled = torch.compile(torch.nn.functional.softshrink, fullgraph=True, dynamic=True, backend="aot_eager")
    for around in ("torch", "right"):
        assert gradient(compiled, around) == gradient(torch.nn.functional.softshrink, around)
