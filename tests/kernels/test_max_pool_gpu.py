"""On CUDA: tied windows share as by the plain rule; without ties gradients are torch's own to the bit; nothing is
waited for, and nothing is kept but a word for each window."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import DTYPES, assert_same_bits, cotangent
from kernels.windows import ALL_POOLINGS, LAYOUTS, input_of, pooled_with_indices
from kernels.without import without
from torch import Tensor

import subgrad
from subgrad.kernels import max_pool

pytestmark = pytest.mark.gpu
# Every pooling in both layouts, and every dtype by each kernel: Triton compiles anew for each of these.
ALL_DTYPES = ("overlapping", "adaptive", "more entries than bits")
CASES = [
    (name, layout, dtype)
    for number, name in enumerate(ALL_POOLINGS)
    for which, layout in enumerate(LAYOUTS)
    for dtype in (DTYPES if name in ALL_DTYPES else [torch.float32 if which == 0 else DTYPES[number % len(DTYPES)]])
]
CLOSE = {2: {"rtol": 5e-3, "atol": 1e-3}, 4: {"rtol": 1e-5, "atol": 1e-5}, 8: {"rtol": 1e-12, "atol": 1e-12}}
UNTIED = [(name, layout) for name, layout, dtype in CASES if dtype is torch.float32]
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "max_pool1d": lambda x: F.max_pool1d(x.flatten(2), 3, 2, 1),
    "max_pool1d, channels last": lambda x: F.max_pool1d(x.flatten(2).transpose(1, 2).contiguous().transpose(1, 2), 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool3d": lambda x: F.max_pool3d(x.unsqueeze(2), (1, 3, 3), 2, (0, 1, 1)),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x.flatten(2), 7),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (5, 4)),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x.unsqueeze(2), (1, 5, 4)),
    "max_pool2d, large": lambda x: F.max_pool2d(x, 9, 2, 4),
    "adaptive_max_pool2d, large": lambda x: F.adaptive_max_pool2d(x, 1),
    "max_pool2d with indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
}


@pytest.fixture(autouse=True)
def on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def is_ours(out: Tensor) -> bool:
    assert out.grad_fn is not None
    return out.grad_fn.name() == "SharedBackward" or "Pooled" in out.grad_fn.name()


@pytest.mark.parametrize(("name", "layout", "dtype"), CASES, ids=str)
def test_gradients_are_those_of_the_plain_rule(name: str, layout: str, dtype: torch.dtype) -> None:
    x = input_of(name, dtype, "cuda", layout).requires_grad_()
    own, chosen = pooled_with_indices(x, name)
    with subgrad.use("min-norm"):
        found, indices = pooled_with_indices(x, name)
        # The plain rule rounds every sum: of windows that overlap it is the measure in double precision.
        wide = x if name == "side by side" else x.detach().double().requires_grad_()
        with without(max_pool.MaxPool):
            plain, _ = pooled_with_indices(wide, name)
    assert is_ours(found)
    assert not is_ours(plain)
    assert_same_bits(found, own)
    assert found.stride() == own.stride()
    assert torch.equal(indices[own > float("-inf")], chosen[own > float("-inf")])
    v = (cotangent(own).nan_to_num(0.25, 1.0, -1.0) * 8).round() / 8
    # Of windows of -inf torch's kernels for channels last have the index 0, also where they do not hold that entry; a
    # single entry, which ties with nothing, is given nothing then.
    v = v.masked_fill(own == float("-inf"), 0) if layout == "channels_last" else v
    # The plain rule adds what ties share to zeros, by which those that are negative lose their sign.
    one = torch.autograd.grad(found, x, v, retain_graph=True)[0] + 0.0
    other = torch.autograd.grad(plain, wide, v.to(wide))[0] + 0.0
    if name == "side by side":
        assert_same_bits(one, other)
    else:
        torch.testing.assert_close(one.double(), other, **CLOSE[x.element_size()])
    (again,) = torch.autograd.grad(found, x, v, retain_graph=True)
    assert_same_bits(one, again + 0.0)
    (by_torch,) = torch.autograd.grad(found, x, v, create_graph=True)
    torch.testing.assert_close(by_torch.detach(), one, rtol=1e-2 if x.element_size() == 2 else 1e-5, atol=1e-4)


@pytest.mark.parametrize(("name", "layout"), UNTIED)
def test_windows_without_ties_are_torchs_own(name: str, layout: str) -> None:
    x = input_of(name, torch.float32, "cuda", layout, tied=False).requires_grad_()
    own, chosen = pooled_with_indices(x, name)
    with subgrad.use("min-norm"):
        found, indices = pooled_with_indices(x, name)
    assert is_ours(found)
    assert torch.equal(indices, chosen)
    v = torch.randn(own.shape, device="cuda")
    one, other = (torch.autograd.grad(out, x, v)[0] for out in (found, own))
    is_deterministic = "in space" not in name and "adaptive" not in name  # of those torch's own adds up atomically
    if is_deterministic:
        assert_same_bits(one, other)
    else:
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_form_is_done_by_the_kernels_and_waits_for_nothing(name: str, layout: str) -> None:
    x = input_of("overlapping", torch.bfloat16, "cuda", layout).nan_to_num(0.5, 1.0, -1.0).requires_grad_()

    def step() -> tuple[Tensor, Tensor]:
        with subgrad.use("min-norm"):
            out = CALLS[name](x)
        return out, torch.autograd.grad(out, x, torch.ones_like(out).cumsum(-1))[0]

    step()  # compiled by now
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        out, gradient = step()
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    wide = x.detach().double().cpu().requires_grad_()
    with subgrad.use("min-norm"):
        wanted = CALLS[name](wide)
    assert torch.equal(out.double().cpu(), wanted)
    (on_cpu,) = torch.autograd.grad(wanted, wide, torch.ones_like(wanted).cumsum(-1))
    torch.testing.assert_close(gradient.double().cpu(), on_cpu, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiles_leave_nothing_out(layout: str) -> None:
    """More channels and planes than a program does, and some left over; held against the same on the CPU."""
    x = torch.randint(-2, 2, (3, 131, 37, 29)).float().contiguous(memory_format=LAYOUTS[layout])
    v = torch.randn(F.max_pool2d(x, 3, 2, 1).shape)
    gradients = []
    for device in ("cpu", "cuda"):
        leaf = x.to(device).requires_grad_()
        with subgrad.use("min-norm"):
            out = F.max_pool2d(leaf, 3, 2, 1)
        gradients.append(torch.autograd.grad(out, leaf, v.to(device))[0].cpu())
    torch.testing.assert_close(*gradients)


def test_two_bytes_an_output_are_kept() -> None:
    x = torch.randn(4, 64, 112, 112, device="cuda", dtype=torch.bfloat16).relu_().requires_grad_()
    with subgrad.use("min-norm"):
        F.max_pool2d(x, 3, 2, 1)
        before = torch.cuda.memory_allocated()
        out = F.max_pool2d(x, 3, 2, 1)
    kept = torch.cuda.memory_allocated() - before - out.numel() * out.element_size()
    assert kept <= 2 * out.numel() + 4096


def test_the_result_and_the_input_may_be_overwritten() -> None:
    leaf = input_of("overlapping", torch.float32, "cuda", "contiguous").nan_to_num(0.5, 1.0, -1.0).requires_grad_()
    x = leaf * 1
    with subgrad.use("min-norm"):
        kept, out = F.max_pool2d(leaf, 3, 2, 1), F.max_pool2d(x, 3, 2, 1)
    v = torch.linspace(-1, 2, out.numel(), device="cuda").view_as(out)
    (wanted,) = torch.autograd.grad(kept, leaf, 2 * v)
    out.mul_(2)
    x.detach().zero_()
    (found,) = torch.autograd.grad(out, leaf, v)
    torch.testing.assert_close(found, wanted)


def test_graphs_capture_the_kernels() -> None:
    x = torch.zeros(2, 16, 12, 12, device="cuda").requires_grad_()
    v = torch.randn(2, 16, 6, 6, device="cuda")

    def step() -> Tensor:
        with subgrad.use("min-norm"):
            return torch.autograd.grad(F.max_pool2d(x, 3, 2, 1), x, v)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        x.copy_(torch.randint(-1, 2, x.shape).float())
    graph.replay()
    assert_same_bits(captured, step())


def test_an_empty_batch_is_torchs_own() -> None:
    x = torch.zeros(0, 3, 8, 8, device="cuda", requires_grad=True)
    with subgrad.use("min-norm"):
        out = F.max_pool2d(x, 2)
    assert out.shape == (0, 3, 4, 4)
    assert torch.autograd.grad(out.sum(), x)[0].shape == x.shape
