"""The front on CUDA: the same as in Python, to the bit, and no Python for a call like an earlier one."""

from __future__ import annotations

import pytest
import torch
from kernels.calls import CALLS, DTYPES, IN_PLACE
from kernels.fronts import assert_same_as_in_python, run_unwatched

import subgrad
from subgrad.kernels.native import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not build.is_used(), reason="needs `subgrad build`, and so a C++ compiler"),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_every_number_under_every_convention(name: str, dtype: torch.dtype) -> None:
    assert_same_as_in_python(name, dtype, "cuda")


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_every_number_under_every_convention_packed(name: str, dtype: torch.dtype) -> None:
    assert_same_as_in_python(name, dtype, "cuda")


def test_no_python_runs_for_a_call_like_an_earlier_one() -> None:
    run_unwatched("cuda")


def test_captured_graphs_replay_the_convention() -> None:
    x = torch.tensor([-1.0, 0.0, 1.0], device="cuda", requires_grad=True)
    g = torch.tensor([2.0, 3.0, 4.0], device="cuda")

    def step() -> torch.Tensor:
        with subgrad.use("right"):
            return torch.autograd.grad(torch.maximum(x, torch.zeros_like(x[0])), x, g)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    torch.cuda.synchronize()
    assert found.tolist() == [0, 3, 4]
