"""On CUDA: compiled graphs pool by the kernels of eager code, whatever the layout and the sizes, and no cache mixes up
conventions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import assert_same_bits, cotangent
from kernels.windows import LAYOUTS, input_of, pooled_with_indices
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_fw_bw_and_get_code

import subgrad

pytestmark = [pytest.mark.gpu, pytest.mark.compiled]
POOLINGS = ("side by side", "overlapping", "spread out, over the border", "every bit", "adaptive", "in space")
CASES = [(name, layout, torch.float32) for name in POOLINGS for layout in LAYOUTS]
CASES += [("overlapping", layout, torch.bfloat16) for layout in LAYOUTS]


@pytest.fixture(autouse=True)
def on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    torch.compiler.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def finite(out: Tensor) -> Tensor:
    """A cotangent."""
    return cotangent(out).nan_to_num(0.25, 1.0, -1.0)


@pytest.mark.parametrize(("name", "layout", "dtype"), CASES, ids=str)
def test_values_and_gradients_are_those_of_eager_code(name: str, layout: str, dtype: torch.dtype) -> None:
    x = input_of(name, dtype, "cuda", layout).requires_grad_()
    with subgrad.use("min-norm"):
        wanted, _ = pooled_with_indices(x, name)
        found = torch.compile(lambda x: pooled_with_indices(x, name)[0], fullgraph=True)(x)
    assert_same_bits(found, wanted)
    assert found.stride() == wanted.stride()
    v = finite(wanted)
    one, other = (torch.autograd.grad(out, x, v)[0] for out in (found, wanted))
    assert_same_bits(one, other)
    assert one.stride() == other.stride()


def test_the_code_has_our_kernels_and_not_torchs() -> None:
    x = torch.randn(8, 16, 24, 24, device="cuda", dtype=torch.bfloat16).requires_grad_()

    def pooled(x: Tensor) -> Tensor:
        return F.max_pool2d(torch.relu(x * 2), 3, 2, 1)

    with subgrad.use("min-norm"):
        _, (forward, backward) = run_fw_bw_and_get_code(lambda: torch.compile(pooled, fullgraph=True)(x))
    assert forward.count("torch.ops.subgrad.max_pool.default(") == 1
    assert backward.count("torch.ops.subgrad.max_pool_spread.default(") == 1
    assert "low_memory_max_pool" not in forward + backward
    assert "max_pool2d_with_indices" not in forward + backward


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("convention", ["min-norm", "mean"])
def test_models_have_the_eager_gradient(layout: str, convention: str) -> None:
    """Convolutions choose the layout of what is pooled; in double precision nothing is rounded away."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), nn.Conv2d(8, 8, 3), nn.MaxPool2d(2)
    model = nn.Sequential(*layers, nn.ReLU(inplace=True), nn.MaxPool2d(3, 1, 1), nn.Flatten())
    model = model.to("cuda", torch.float64, memory_format=LAYOUTS[layout])
    x = torch.randint(-1, 2, (4, 3, 30, 30), device="cuda").double().contiguous(memory_format=LAYOUTS[layout])
    x[:, :, :15] = 0
    found = []
    for run in (model, torch.compile(model, fullgraph=True)):
        with subgrad.use(convention):
            out = run(x)
        found.append([out, *torch.autograd.grad(out, [*model.parameters()], finite(out))])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_one_graph_serves_all_sizes() -> None:
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(lambda x: F.max_pool2d(x, 3, 2, 1) * 2, dynamic=True, fullgraph=True, backend=counter)
    for shape in ((2, 3, 9, 12), (4, 5, 7, 8), (3, 2, 11, 14)):
        x = torch.randint(-1, 2, shape, device="cuda").float().requires_grad_()
        with subgrad.use("min-norm"):
            found, wanted = compiled(x), F.max_pool2d(x, 3, 2, 1) * 2
        assert_same_bits(found, wanted)
        assert_same_bits(*(torch.autograd.grad(out, x, finite(wanted))[0] for out in (found, wanted)))
    assert counter.frame_count == 1


def test_graphs_are_captured() -> None:
    """Replayed as CUDA graphs, with other entries each time."""
    compiled = torch.compile(lambda x: F.max_pool2d(x, 3, 2, 1) * 2, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        x = torch.randint(-1, 2, (4, 8, 20, 20), device="cuda").float().requires_grad_()
        with subgrad.use("min-norm"):
            torch.compiler.cudagraph_mark_step_begin()
            found, wanted = compiled(x), F.max_pool2d(x, 3, 2, 1) * 2
        assert_same_bits(found, wanted)
        assert_same_bits(*(torch.autograd.grad(out, x, finite(wanted))[0] for out in (found, wanted)))


def test_derivatives_of_derivatives_are_refused_or_right() -> None:
    x = torch.zeros(1, 1, 4, 4, device="cuda", dtype=torch.float64).requires_grad_()

    def squares(x: Tensor) -> Tensor:
        return torch.func.grad(lambda x: (F.max_pool2d(x, 2) ** 2).sum())(x)

    with subgrad.use("min-norm"):
        found, wanted = (run(x) for run in (torch.compile(squares, fullgraph=True), squares))
        out = torch.compile(lambda x: F.max_pool2d(x, 2) ** 2)(x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(each.sum(), x)[0] for each in (found, wanted)))
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"double backward|not to have been used|does not require grad"):
        torch.autograd.grad(first.sum(), x)


PROCESS = """
import sys, torch, torch.nn.functional as F
from torch._dynamo.utils import counters
x = torch.zeros(1, 1, 2, 4, device="cuda", requires_grad=True)
compiled = torch.compile(lambda x: F.max_pool2d(torch.relu(x) + x, 2), fullgraph=True)
if sys.argv[1] == "plain":
    y = compiled(x)
else:
    import subgrad
    with subgrad.use(sys.argv[1]):
        y = compiled(x)
gradient = torch.autograd.grad(y, x, torch.tensor([4.0, 8.0], device="cuda").view_as(y))[0]
print(gradient.flatten().tolist(), counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_processes_that_share_a_cache_folder_never_share_gradients() -> None:
    """Without a convention and under two; the second time from the cache."""
    wanted = {
        "plain": [4.0, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        "min-norm": [1.0, 1.0, 2.0, 2.0] * 2,
        "mean": [1.5, 1.5, 3.0, 3.0] * 2,
    }
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for hits in (0, 1):
        for convention, gradient in wanted.items():
            command = [sys.executable, "-c", PROCESS, convention]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip() == f"{gradient} {hits}"
