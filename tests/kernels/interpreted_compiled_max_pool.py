"""Max-pooling inside compiled graphs as on CUDA, on a CPU: the kernels run by Triton's interpreter.

Run by `test_triton.py`, in a process of its own and without the C++ part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import assert_same_bits, cotangent
from kernels.windows import ALL_POOLINGS, LAYOUTS, arguments_of, input_of, pooled_with_indices
from torch import Tensor
from torch._dynamo.testing import AotEagerAndRecordGraphs, CompileCounterWithBackend
from torch._dynamo.utils import counters

import subgrad
from subgrad.apply.autograd_nodes import through
from subgrad.kernels import compiled_max_pool, max_pool, triton_launch
from subgrad.kernels import triton_max_pool as kernels


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(triton_launch, "launch", launch)
    monkeypatch.setattr(max_pool, "_is_by_loops", lambda x: False)
    monkeypatch.setattr(compiled_max_pool, "_has_kernels", lambda x: True)


def launch(name: str, programs: int, tensors: Any, numbers: Any, constants: Any, warps: int) -> None:
    getattr(kernels, name)[programs,](*tensors, *numbers, *constants)


def finite(out: Tensor) -> Tensor:
    """A cotangent."""
    return cotangent(out).nan_to_num(0.25, 1.0, -1.0)


def texts(backend: AotEagerAndRecordGraphs) -> tuple[str, str]:
    """Of the graph of the forward and that of the backward, once both have run."""
    (forward,), (backward,) = backend.fw_graphs, backend.bw_graphs
    return str(forward.graph), str(backward.graph)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ALL_POOLINGS)
def test_graphs_hold_the_operators_and_give_the_eager_gradient(name: str, layout: str) -> None:
    x = input_of(name, torch.float32, "cpu", layout).requires_grad_()
    geometry = max_pool.geometry_of(x, arguments_of(name))
    assert geometry is not None
    backend = AotEagerAndRecordGraphs()
    with subgrad.use("min-norm"):
        out = torch.compile(lambda x: pooled_with_indices(x, name)[0], fullgraph=True, backend=backend)(x)
    wanted, _ = max_pool.pooled(x, geometry, True)
    assert_same_bits(out, wanted)
    assert out.stride() == wanted.stride()
    v = finite(wanted)
    one, other = (torch.autograd.grad(each, x, v)[0] for each in (out, wanted))
    forward, backward = texts(backend)
    assert ("subgrad.max_pool." in forward) == ("subgrad.max_pool_spread." in backward) == geometry.is_small
    if geometry.is_small:
        assert "aten" not in forward + backward
        assert_same_bits(one, other)
        assert one.stride() == other.stride()
    else:
        torch.testing.assert_close(one, other)


def test_one_graph_serves_all_sizes() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: F.max_pool2d(x, 3, 2, 1), dynamic=True, backend=counter)
    arguments = {**arguments_of("overlapping"), "ceil_mode": False}  # torch itself compiles even and odd sizes apart
    for shape in ((2, 3, 9, 12), (4, 5, 7, 8), (3, 2, 11, 14)):
        x = torch.randint(-1, 2, shape).float().requires_grad_()
        with subgrad.use("min-norm"):
            out = compiled(x)
        wanted, _ = max_pool.pooled(x, max_pool.geometry_of(x, arguments), True)
        v = finite(wanted)
        assert_same_bits(out, wanted)
        assert_same_bits(*(torch.autograd.grad(each, x, v)[0] for each in (out, wanted)))
    assert counter.frame_count == 1


def test_indices_that_are_used_are_torchs_own() -> None:
    x = input_of("overlapping", torch.float32, "cpu", "contiguous").nan_to_num(0.5).requires_grad_()
    backend = AotEagerAndRecordGraphs()
    with subgrad.use("min-norm"):
        out, indices = torch.compile(lambda x: pooled_with_indices(x, "overlapping"), backend=backend)(x)
    own, chosen = pooled_with_indices(x, "overlapping")
    assert_same_bits(out, own)
    assert torch.equal(indices, chosen)
    (found,) = torch.autograd.grad(out, x, finite(out))
    wanted, _ = max_pool.pooled(x, max_pool.geometry_of(x, arguments_of("overlapping")), True)
    assert_same_bits(found, torch.autograd.grad(wanted, x, finite(out))[0])
    assert "with_indices" in texts(backend)[0]


def test_transforms_inside_a_graph_take_the_general_rule() -> None:
    x = torch.randint(-1, 2, (3, 2, 9, 12)).double()

    def gradients(x: Tensor) -> Tensor:
        squares = torch.func.grad(lambda x: (pooled_with_indices(x, "overlapping")[0] ** 2).sum())
        return torch.func.vmap(squares)(x[:, None])[:, 0]

    with subgrad.use("min-norm"):
        found, wanted = torch.compile(gradients, fullgraph=True, backend="aot_eager")(x), gradients(x)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["side by side", "overlapping", "adaptive", "in space, overlapping"])
def test_derivatives_of_higher_order(name: str) -> None:
    """What graphs are made of, run as it is: nothing that compiles differentiates a graph twice."""
    x = input_of(name, torch.float64, "cpu", "channels_last").nan_to_num(0.25, 1.0, -1.0).requires_grad_()
    arguments = arguments_of(name)
    wanted, _ = max_pool.pooled(x, max_pool.geometry_of(x, arguments), True)
    found = through(compiled_max_pool._Pooled, x, wanted.shape, compiled_max_pool._numbers(arguments))
    v = finite(wanted).requires_grad_()
    w = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x).requires_grad_()
    first, plain = (torch.autograd.grad(out, x, v, create_graph=True)[0] for out in (found, wanted))
    torch.testing.assert_close(first, plain)
    second, plain = (torch.autograd.grad(each, v, w, create_graph=True)[0] for each in (first, plain))
    torch.testing.assert_close(second, plain)
    u = torch.linspace(2, -1, v.numel(), dtype=x.dtype).view_as(v)
    torch.testing.assert_close(*(torch.autograd.grad(each, w, u)[0] for each in (second, plain)))


def test_what_is_exported_runs_where_subgrad_is_not() -> None:
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    with subgrad.use("min-norm"):
        exported = torch.export.export(torch.nn.MaxPool2d(2), (x,))
    assert "subgrad" not in str(exported.graph)


def test_inductor_calls_the_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between operators that it fuses; a second time from the caches on disk."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.randint(-2, 3, (2, 3, 9, 12)).float().requires_grad_()

    def step(x: Tensor) -> Tensor:
        return torch.sin(F.max_pool2d(torch.relu(x * 2), 3, 2, 1)) + 1

    for number in range(2):
        torch.compiler.reset()
        counters.clear()
        with subgrad.use("min-norm"):
            out, wanted = torch.compile(step, fullgraph=True)(x), step(x)
        torch.testing.assert_close(out, wanted)
        torch.testing.assert_close(*(torch.autograd.grad(each, x, finite(wanted))[0] for each in (out, wanted)))
        assert counters["aot_autograd"]["autograd_cache_hit"] == number
        assert not counters["aot_autograd"]["autograd_cache_bypass"]
