"""On CUDA every capability gives the gradients of the CPU, under every convention; CUDA graphs included."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import subgrad
from everywhere import capabilities
from everywhere.capabilities import CAPABILITIES, gradients
from everywhere.families import FAMILIES, Program, cotangents
from everywhere.matrix import CONVENTIONS, LEFT_TO_TORCH, OWN, PASS, disagrees_with_itself, expected, outcome

pytestmark = pytest.mark.gpu
SEVERAL = ("min-norm", "mean", "right", "torch")
TAKE_SELECTIONS = ("min-norm", "documented", "mean", repr(OWN))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    monkeypatch.setattr(capabilities, "BACKEND", "aot_eager")
    torch.compiler.reset()


def assert_expected(found: list[Tensor], family: str, convention: str, device: str = "cuda") -> None:
    for one, other in zip(found, expected(family, CONVENTIONS[convention], device), strict=True):
        kept = ~other.isnan()
        torch.testing.assert_close(one.cpu()[kept], other[kept], rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_eager_gradients_are_those_of_the_cpu(convention: str, family: str) -> None:
    if family == "selections" and convention not in TAKE_SELECTIONS:
        pytest.skip("left to torch, whose devices select different entries among tied ones")
    assert_expected(expected(family, CONVENTIONS[convention], "cuda"), family, convention, device="cpu")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_convention_holds_on_cuda(capability: str, family: str) -> None:
    left_out = LEFT_TO_TORCH if disagrees_with_itself(capability) else ()
    found = {name: outcome(capability, name, family, "cuda") for name in CONVENTIONS if name not in left_out}
    nested = {"refused", "torch itself: NotImplementedError"} if "nested" in capability else set()
    assert set(found.values()) <= {PASS} | nested, found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}], ids=str)
def test_inductor_with_and_without_cuda_graphs(options: dict[str, str], family: str) -> None:
    """Compiled once, called often enough for the graph to be recorded and replayed, under several by turns."""
    program = FAMILIES[family].on("cuda")
    function = torch.compile(program.function, fullgraph=True, **options)
    # Selections that are left to torch: Inductor and eager code take different entries among tied ones.
    for convention in (TAKE_SELECTIONS if family == "selections" else SEVERAL) * 4:
        leaves = program.leaves()
        torch.compiler.cudagraph_mark_step_begin()
        with subgrad.use(CONVENTIONS[convention]):
            outputs = function(*leaves)
        assert_expected([each.clone() for each in gradients(outputs, leaves)], family, convention)


@pytest.mark.parametrize("family", ["corners", "corners with slopes", "in place", "ties", "norms at 0"])
@pytest.mark.parametrize("convention", SEVERAL)
def test_a_captured_cuda_graph_replays_the_convention_of_its_capture(family: str, convention: str) -> None:
    program = FAMILIES[family].on("cuda")
    static = [torch.full_like(value, 0.5).requires_grad_() for value in program.values]

    def step() -> list[Tensor]:
        outputs = program.function(*static)
        return gradients(outputs, static)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), subgrad.use(convention):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with subgrad.use(convention), torch.cuda.graph(graph):
        found = step()
    with torch.no_grad(), subgrad.use("left"):
        for one, value in zip(static, program.values, strict=True):
            one.copy_(value)
        graph.replay()
    assert_expected(found, family, convention)


def test_backward_runs_on_autograds_own_thread() -> None:
    """What a checkpoint recomputes there sees the convention of its forward."""
    program = FAMILIES["corners"].on("cuda")
    leaves = program.leaves()
    with subgrad.use("mean"):
        outputs = torch.utils.checkpoint.checkpoint(program.function, *leaves, use_reentrant=False)
    torch.autograd.backward(outputs, cotangents(outputs))
    assert_expected([leaf.grad for leaf in leaves], "corners", "mean")


def test_large_tensors_take_the_element_in_every_entry() -> None:
    program = Program(FAMILIES["corners"].function, (torch.zeros(1 << 24, device="cuda"),))
    leaves = program.leaves(torch.bfloat16)
    with subgrad.use("mean"):
        outputs = program.function(*leaves)
    cotangent = torch.arange(1 << 24, device="cuda").remainder(7).to(torch.bfloat16) - 3
    found = torch.autograd.grad(outputs, leaves, [cotangent] * len(outputs))[0]
    assert torch.equal(found, (0.5 + 0.5 + 0.0 + 1.0) * cotangent)
