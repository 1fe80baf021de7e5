"""No Python runs for a call like an earlier one.

Run by `test_fast_path.py` and `test_fast_path_gpu.py`, in a process where nothing is watched: what an audit or
`subgrad.grad` has registered stays, and lies over the fast path.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernels.calls import CALLS, IN_PLACE, assert_same_bits
from kernels.fronts import python_run_by, without_front
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import subgrad
from subgrad.apply import dispatch
from subgrad.kernels import cuda_bitmask
from subgrad.kernels.triton_launch import Launch
from subgrad.torch_internals.versions import COLUMN

# What torch does not do right, and a mask by one number would not do for.
LEFT_TO_PYTHON = {
    *("leaky_relu(-0.3)", "softshrink(0)", "minimum, nan", "fmax, number"),
    "minimum, other only",
    *(("clamp, closed",) if COLUMN == "2.13" else ()),
}
OF_TWO_TENSORS = ("maximum, number",)  # of which Python launches the kernels
SOME = ("clamp", "clamp_", "clamp_min", "relu", "relu6", "leaky_relu", "maximum, number")


@pytest.fixture(autouse=True)
def every_kernel_is_registered() -> None:
    dispatch.install()


@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_cpu_under_min_norm(name: str) -> None:
    x, call = torch.randn(8, requires_grad=True), (CALLS | IN_PLACE)[name]
    inputs = [x * 1 for _ in range(3)]
    with subgrad.use("min-norm"):
        call(inputs[0])
        seen = python_run_by(lambda: call(inputs[1]))
        with without_front():
            assert python_run_by(lambda: call(inputs[2]))
    assert bool(seen) == (name in LEFT_TO_PYTHON), seen


def test_cpu_where_no_convention_is_in_force_or_nothing_is_differentiated() -> None:
    x = torch.randn(8, requires_grad=True)
    with subgrad.use("min-norm"):
        torch.clamp(x, 0, 1)
        assert not python_run_by(lambda: torch.clamp(x.detach(), 0.125, 1))
        with torch.no_grad():
            assert not python_run_by(lambda: torch.clamp(x, 0.25, 1))
    torch.clamp(x, 0, 1)
    assert not python_run_by(lambda: torch.clamp(x, 0, 1))


def test_cpu_and_a_convention_by_name_is_the_same_every_time() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.use("right"):
        torch.relu(x)
    with subgrad.use("right"):
        assert not python_run_by(lambda: torch.relu(x))


def test_cpu_and_packed_masks_switched_are_asked_for_again() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.use("right"):
        torch.relu(x)
        assert not python_run_by(lambda: torch.relu(x))
        subgrad.kernels.set_packed("auto")
        assert python_run_by(lambda: torch.relu(x))


@pytest.mark.parametrize("convention", ["torch-2.13", "torch-2.14", "min-norm"])
def test_cpu_and_pooling_whether_ties_share_or_torchs_own_gradient_is_wanted(convention: str) -> None:
    x = torch.randn(1, 1, 8, 8, requires_grad=True)
    with subgrad.use(convention):
        torch.max_pool2d(x, 2)
        assert not python_run_by(lambda: torch.max_pool2d(x, 2))


CLAMPED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "clamp": lambda x, _: x.clamp(min=0),
    "maximum": torch.maximum,
    "clamp(min=tensor)": lambda x, low: x.clamp(min=low),
    "a number": lambda x, _: torch.maximum(x, torch.tensor(0.0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CLAMPED)
def test_cpu_clamps_need_neither_what_they_clamped_nor_bounds(name: str, dtype: torch.dtype) -> None:
    leaf = torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=dtype, requires_grad=True)
    with subgrad.use("right"):
        for _ in range(2):
            y, low = leaf * 1, torch.zeros(4, dtype=dtype)
            out = CLAMPED[name](y, low)
            y.add_(5)
            low.add_(9)
            (found,) = torch.autograd.grad(out, leaf, torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=dtype))
            assert found.tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 511, 512, 513, 1025, 32768, 32769, 100_003])
@pytest.mark.parametrize("in_place", [False, True])
def test_cpu_clamps_keep_a_bit_an_entry(size: int, dtype: torch.dtype, in_place: bool) -> None:
    x = (torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(size)) * 4).round() / 2
    cotangent = torch.arange(size, dtype=dtype) - 7.5
    kept: list[Tensor] = []

    def outcomes(convention: str) -> list[Tensor]:
        leaf, weights = x.clone().requires_grad_(), cotangent.clone().requires_grad_()
        y = leaf * 1
        kept.clear()
        with subgrad.use(convention), saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            out = y.clamp_(-0.5, 1) if in_place else y.clamp(-0.5, 1)
        alike = (cotangent, cotangent[:1].expand(size))
        found = [torch.autograd.grad(out, leaf, g, retain_graph=True)[0] for g in alike]
        rows = torch.stack((cotangent, -cotangent))
        found += torch.autograd.grad(out, leaf, rows, retain_graph=True, is_grads_batched=True)
        (traced,) = torch.autograd.grad(out, leaf, weights, create_graph=True)
        return [out, *found, traced, *torch.autograd.grad(traced, weights, cotangent)]

    block = 16 * torch.finfo(dtype).bits  # a word of each of 16 lanes
    words = size // block * 16 + min(size % block, 16)
    for convention in ("left", "right", "min-norm", "pass-through"):
        for _ in range(2):
            found = outcomes(convention)
            assert [each.nbytes for each in kept] == [words * x.itemsize]
        with without_front():
            wanted = outcomes(convention)
        for one, other in zip(found, wanted, strict=True):
            assert_same_bits(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SOME)
def test_cuda_small_tensors_and_large_ones_are_packed(name: str) -> None:
    call = (CALLS | IN_PLACE)[name]
    small = [torch.randn(16, device="cuda", requires_grad=True) * 1 for _ in range(2)]
    large = [torch.randn(cuda_bitmask.SMALLEST, device="cuda", requires_grad=True) * 1 for _ in range(2)]
    with subgrad.use("min-norm"):
        for first, second in (small, large):
            call(first)
            seen = python_run_by(lambda second=second: call(second))
            assert bool(seen) == (name in OF_TWO_TENSORS), seen


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


@pytest.mark.gpu
@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("convention", ["min-norm", "right", "torch"])
def test_cuda_packs_what_lies_well_and_leaves_the_rest(
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
    launched, launch = [], Launch.__call__
    monkeypatch.setattr(Launch, "__call__", lambda *given: (launched.append(given), launch(*given)))
    cotangents = [
        torch.randn_like(out),
        torch.randn(leaf.shape[::-1], device="cuda").permute(*reversed(range(leaf.ndim))),
        torch.randn(leaf.numel() + 1, device="cuda")[1:].view(leaf.shape),
        torch.ones((), device="cuda").expand_as(leaf),
    ]
    for cotangent in cotangents:
        launched.clear()
        (found,) = torch.autograd.grad(out, leaf, cotangent, retain_graph=True)
        if is_packed_by_front(out):  # then no Python launches
            assert not launched
        (wanted,) = torch.autograd.grad(plain, leaf, cotangent, retain_graph=True)
        assert_same_bits(found, wanted)
        assert found.stride() == wanted.stride()


@pytest.mark.gpu
@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("call", [CALLS["relu"], lambda x: IN_PLACE["relu_"](x * 1)])
def test_cuda_packed_as_torchs_own_is(call: Callable[[Tensor], Tensor]) -> None:
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


@pytest.mark.gpu
@pytest.mark.usefixtures("always_packed")
def test_cuda_packed_keeps_the_bits_alone() -> None:
    leaf = entries(1 << 22).requires_grad_()
    with subgrad.use("min-norm"):
        torch.autograd.grad(torch.relu(leaf * 1), leaf, leaf.detach())
        before = torch.cuda.memory_allocated()
        x = leaf * 1
        out = torch.relu(x)
        del x
    assert is_packed_by_front(out)
    assert torch.cuda.memory_allocated() - before - out.nbytes <= leaf.numel() // 8 + 4096
