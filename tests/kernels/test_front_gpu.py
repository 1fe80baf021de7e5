"""The front on CUDA: the same as in Python, to the bit, and no Python for a call like an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from kernels.calls import CALLS, DTYPES, IN_PLACE, assert_same_bits
from kernels.fronts import assert_same_as_in_python, run_unwatched, without_front
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import subgrad
from subgrad.kernels import front, packed, set_packed
from subgrad.kernels.launch import launch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not front.is_used(), reason="needs `subgrad build`, and so a C++ compiler"),
]


@pytest.fixture
def always_packed() -> Iterator[None]:
    set_packed("always")
    yield
    set_packed("auto")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_every_number_under_every_convention(name: str, dtype: torch.dtype) -> None:
    assert_same_as_in_python(name, dtype, "cuda")


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_every_number_under_every_convention_packed(name: str, dtype: torch.dtype) -> None:
    assert_same_as_in_python(name, dtype, "cuda")


def entries(*size: int) -> Tensor:
    return (torch.randn(size, device="cuda") * 2).round()


def is_packed_by_front(out: Tensor) -> bool:
    return out.grad_fn is not None and "CppNode" in out.grad_fn.name() and "Packed" in out.grad_fn.name()


# Left to Python are sizes that 16 does not divide, and odd places in memory.
PLACED = {
    "a line": (lambda: entries(4096), True),
    "a table": (lambda: entries(64, 48), True),
    "columns first": (lambda: entries(64, 48).t(), True),
    "channels last": (lambda: entries(2, 8, 3, 5).to(memory_format=torch.channels_last), True),
    "an odd size": (lambda: entries(4097), False),
    "an odd place": (lambda: entries(4097)[1:], False),
    "with gaps": (lambda: entries(64, 96)[:, ::2], False),
}


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("convention", ["min-norm", "right", "torch"])
def test_packs_what_lies_well_and_leaves_the_rest(
    name: str, convention: str, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, lies_well = PLACED[name]
    leaf = make().detach().requires_grad_()

    def call(x: Tensor) -> Tensor:
        return IN_PLACE["clamp_"](x * 1) if in_place else CALLS["clamp"](x)

    with subgrad.use(convention):
        call(leaf)  # asks Python
        out = call(leaf)
        with without_front():
            plain = call(leaf)
    assert not is_packed_by_front(CALLS["clamp"](leaf))  # where nothing is in force
    is_placed = leaf.numel() % 16 == 0 if in_place else lies_well  # a product is put where it lies well
    assert is_packed_by_front(out) == (is_placed and convention != "torch")
    assert_same_bits(out, plain)
    launched = []
    monkeypatch.setattr(packed, "launch", lambda *given: (launched.append(given), launch(*given)))
    cotangents = [
        torch.randn_like(out),
        torch.randn(leaf.shape[::-1], device="cuda").permute(*reversed(range(leaf.ndim))),
        torch.randn(leaf.numel() + 1, device="cuda")[1:].view(leaf.shape),
        torch.ones((), device="cuda").expand_as(leaf),
    ]
    for cotangent in cotangents:
        launched.clear()
        (found,) = torch.autograd.grad(out, leaf, cotangent, retain_graph=True)
        if is_packed_by_front(out):  # then Python is asked for what lies otherwise alone
            is_alike = cotangent.stride() == out.stride() and cotangent.data_ptr() % 16 == 0
            assert bool(launched) != is_alike
        (wanted,) = torch.autograd.grad(plain, leaf, cotangent, retain_graph=True)
        assert_same_bits(found, wanted)
        assert found.stride() == wanted.stride()


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("call", [CALLS["relu"], lambda x: IN_PLACE["relu_"](x * 1)])
def test_packed_as_torchs_own_is(call: Callable[[Tensor], Tensor]) -> None:
    x, v = entries(4096).requires_grad_(), torch.randn(4096, device="cuda", requires_grad=True)
    with subgrad.use("right"):
        call(x)
        out = call(x)
        assert is_packed_by_front(out)
        wanted = torch.where(x >= 0, v, 0).detach()
        (first,) = torch.autograd.grad(out, x, v, create_graph=True)
        of_input, of_cotangent = torch.autograd.grad(first.square().sum(), (x, v))
        assert not of_input.any()
        assert torch.equal(of_cotangent, 2 * wanted)
        rows = torch.stack((v, 2 * v)).detach()
        (batched,) = torch.autograd.grad(call(x), x, rows, is_grads_batched=True)
        assert torch.equal(batched, torch.stack((wanted, 2 * wanted)))
        with torch.autograd.graph.save_on_cpu():
            out = call(x)
        assert torch.equal(torch.autograd.grad(out, x, v.detach())[0], wanted)
        out = checkpoint(call, x, use_reentrant=False)
        assert torch.equal(torch.autograd.grad(out, x, v.detach())[0], wanted)
        with torch.cuda.stream(torch.cuda.Stream()):
            (found,) = torch.autograd.grad(call(x), x, v.detach())
        torch.cuda.synchronize()
        assert torch.equal(found, wanted)
        out = call(x)
        out.backward(v.detach())
        with pytest.raises(RuntimeError, match="second time"):
            out.backward(v.detach())


@pytest.mark.usefixtures("always_packed")
def test_packed_keeps_the_bits_alone() -> None:
    leaf = entries(1 << 22).requires_grad_()
    with subgrad.use("min-norm"):
        torch.autograd.grad(torch.relu(leaf * 1), leaf, leaf.detach())
        before = torch.cuda.memory_allocated()
        x = leaf * 1
        out = torch.relu(x)
        del x
    assert is_packed_by_front(out)
    assert torch.cuda.memory_allocated() - before - out.nbytes <= leaf.numel() // 8 + 4096


def test_no_python_runs_for_small_tensors_and_large_ones_are_packed() -> None:
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
