"""Packed masks give the gradients of the plain path to the bit, and keep no more than their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import CALLS, CONVENTIONS, DTYPES, IN_PLACE, assert_same_bits, cotangent, every_number, outcome
from kernels.fronts import without_front
from torch import Tensor

import subgrad
from subgrad.kernels import bit_planes, cuda_bitmask, set_packed

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_a_gpu() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    set_packed("always")
    with without_front():  # which would answer in place of the plain path
        yield
    set_packed("auto")


def both(call: Callable[[Tensor], Tensor], x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The outcome with packed masks and without."""
    found = outcome(call, x)
    set_packed("never")
    plain = outcome(call, x)
    set_packed("always")
    yield from zip(found, plain, strict=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_every_number_under_every_convention(name: str, dtype: torch.dtype) -> None:
    call, x = (CALLS | IN_PLACE)[name], every_number(dtype, "cuda")
    native = call(x.clone())
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            for found, plain in both(call, x):
                assert_same_bits(found, plain)
            assert_same_bits(call(x.clone().requires_grad_().clone()), native)


def is_packed(out: Tensor) -> bool:
    assert out.grad_fn is not None
    return "Packed" in out.grad_fn.name()


PACKED = [name for name in CALLS if "jump" not in name and "nan" not in name and "fmax" not in name]


@pytest.mark.parametrize("name", [*PACKED, *IN_PLACE])
def test_they_are_really_used(name: str) -> None:
    x = torch.randn(100, device="cuda", requires_grad=True)
    with subgrad.use("min-norm"):
        assert is_packed((CALLS | IN_PLACE)[name](x.clone()))


def layouts() -> dict[str, Tensor]:
    x = torch.randn(4, 6, 5, 7, device="cuda").round(decimals=0)
    return {
        "contiguous": x,
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "transposed": x.transpose(0, 2),
        "sliced": x[:, ::2, 1:],
        "expanded": x[:1].expand(3, 6, 5, 7),
        "empty": x[:0],
        "0-d": x[0, 0, 0, 0],
        "one": x[0, 0, 0, :1],
        "odd": x.flatten()[3:],
    }


@pytest.mark.parametrize("layout", layouts() if torch.cuda.is_available() else ["none"])
@pytest.mark.parametrize("convention", ["min-norm", "mean"])
def test_layouts(layout: str, convention: str) -> None:
    """Of inputs, and of cotangents that are laid out otherwise."""
    x = layouts()[layout]
    with subgrad.use(convention):
        for call in (lambda x: torch.clamp(x, -1, 1), torch.abs, lambda x: torch.maximum(x, x.detach() + 0)):
            for found, plain in both(call, x):
                assert_same_bits(found, plain)
            leaf = x.detach().requires_grad_()
            out = call(leaf)
            assert out.stride() == call(x).stride()
            for other in (
                cotangent(out),
                torch.ones((), device="cuda").expand_as(out),
                cotangent(out.mT).mT if x.ndim > 1 else cotangent(out),
            ):
                found = torch.autograd.grad(out, leaf, other, retain_graph=True)[0]
                set_packed("never")
                plain = torch.autograd.grad(call(leaf), leaf, other)[0]
                set_packed("always")
                assert_same_bits(found, plain)


@pytest.mark.parametrize("name", ["abs", "abs_", "clamp", "softshrink", "maximum, number", "maximum of two"])
@pytest.mark.parametrize("has_flags", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_blocks_with_kinks_beside_blocks_without(
    name: str, has_flags: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a block without kinks leaves as it is may hold anything: here, ones."""
    if not has_flags:
        monkeypatch.setattr(bit_planes, "MOST_FLAGS", 0)
    x = 0.75 + torch.rand(50_001, device="cuda").to(dtype) / 4  # on no kink
    for place, number in ((12_345, 0.0), (23_456, 0.5), (34_567, -1.0), (34_568, 2.0), (49_999, float("nan"))):
        x[place] = number
    call = (CALLS | IN_PLACE)[name]
    with subgrad.use("mean"):
        found = outcome(call, x)
        for _ in range(3):
            dirty = [torch.full((size,), 255, dtype=torch.uint8, device="cuda") for size in range(512, 1 << 16, 512)]
            del dirty
            for one, other in zip(outcome(call, x), found, strict=True):
                assert_same_bits(one, other)
        for packs, plain in both(call, x):
            assert_same_bits(packs, plain)
        leaf = x.clone().requires_grad_()
        out = call(leaf.clone())
        rows = torch.stack([cotangent(out), -cotangent(out)])
        batched = torch.autograd.grad(out, leaf, rows, is_grads_batched=True)[0]
        assert_same_bits(batched[0], found[1])


@pytest.mark.parametrize("name", [name for name in PACKED if name != "hardsigmoid"])  # of which torch has none
@pytest.mark.parametrize("convention", ["min-norm", "mean"])
def test_second_derivatives(name: str, convention: str) -> None:
    """Of the cotangent, and of the input, in which they are zero and not missing."""

    def second() -> list[Tensor]:
        torch.manual_seed(0)
        x = torch.randn(50, device="cuda").round().requires_grad_()
        v = torch.randn(50, device="cuda", requires_grad=True)
        (first,) = torch.autograd.grad(CALLS[name](x) * x, x, v, create_graph=True)
        return [first, *torch.autograd.grad(first.square().sum(), (x, v))]

    with subgrad.use(convention):
        found = second()
        set_packed("never")
        torch.testing.assert_close(found, second())
        set_packed("always")
        x = torch.randn(50, device="cuda", requires_grad=True)
        (first,) = torch.autograd.grad(torch.relu(x).sum(), x, create_graph=True)
        assert not torch.autograd.grad(first.sum(), x)[0].any()


def requested_bytes(when: str) -> int:
    """What was asked of the allocator, whose blocks may be larger than what they hold."""
    return torch.cuda.memory_stats()[f"requested_bytes.all.{when}"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("name", "eighths"), [("relu", 1), ("clamp", 1), ("maximum, number", 1), ("abs", 2), ("leaky_relu", 1)]
)
def test_what_is_kept(name: str, eighths: int, dtype: torch.dtype) -> None:
    """Between forward and backward: the bits and a constant, once the input is gone."""
    size = 1 << 22
    leaf = torch.randn(size, device="cuda", dtype=dtype).requires_grad_()
    with subgrad.use("min-norm"):
        torch.autograd.grad(CALLS[name](leaf.clone()), leaf, leaf)
        before = requested_bytes("current")
        x = leaf + 0
        out = CALLS[name](x)
        del x
    kept = requested_bytes("current") - before - out.nbytes
    assert kept <= size * eighths // 8 + 4096


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_keeps_no_copy(name: str) -> None:
    size = 1 << 22
    leaf = torch.randn(size, device="cuda").requires_grad_()
    with subgrad.use("min-norm"):
        IN_PLACE[name](leaf.clone())
        x = leaf + 0
        torch.cuda.reset_peak_memory_stats()
        before, version = requested_bytes("current"), x._version
        assert IN_PLACE[name](x) is x
        assert requested_bytes("peak") - before <= size // 4 + 4096
        assert x._version > version


def test_in_place_over_views_and_leaves() -> None:
    x = torch.randn(64, device="cuda", requires_grad=True)
    with subgrad.use("mean"), pytest.raises(RuntimeError, match="leaf Variable"):
        torch.relu_(x)

    def gradient() -> Tensor:
        base = x * 1
        base[:32].clamp_(0, 1)
        return torch.autograd.grad(base, x, cotangent(base))[0]

    with subgrad.use("mean"):
        found = gradient()
        set_packed("never")
        assert_same_bits(found, gradient())


def test_more_than_two_to_the_31() -> None:
    size = (1 << 31) + 24
    x = torch.full((size,), -1.0, device="cuda", dtype=torch.bfloat16)
    x[-5:], x[1 << 31] = 2.0, 0.0
    x.requires_grad_()
    with subgrad.use("right"):
        out = torch.relu(x)
    assert is_packed(out)
    assert out.double().sum() == 10
    out.backward(torch.full_like(out, 3.0))
    assert x.grad is not None
    assert x.grad.double().sum() == 18
    assert x.grad[1 << 31] == 3


@pytest.mark.parametrize("size", [(1 << 31) - 60, (1 << 31) + 24])
def test_two_bits_around_two_to_the_31(size: int) -> None:
    x = torch.full((size,), -1.0, device="cuda", dtype=torch.bfloat16)
    x[-5:] = torch.tensor([0.0, 2.0, float("nan"), 2.0, 0.0])
    x.requires_grad_()
    with subgrad.use("min-norm"):
        out = torch.abs(x)
    assert is_packed(out)
    given = torch.full_like(out, 7.0)
    given[-6:] = torch.arange(1.0, 7.0)
    out.backward(given)
    assert x.grad is not None
    assert x.grad[-6:].tolist() == [-1, 0, 3, 0, 5, 0]
    assert (x.grad[:-6] == -7).all()


def test_batched_cotangents_and_forward_over_reverse() -> None:
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], device="cuda", requires_grad=True)
    with subgrad.use("mean"):
        out = torch.clamp(x, 0, 1)
        assert is_packed(out)
        rows = torch.eye(5, device="cuda")
        jacobian = torch.autograd.grad(out, x, rows, is_grads_batched=True)[0]
        assert jacobian.diagonal().tolist() == [0, 0.5, 1, 0.5, 0]
        hessian = torch.func.jacfwd(torch.func.grad(lambda x: torch.clamp(x, 0, 1).square().sum()))(x.detach())
        assert hessian.diagonal().tolist() == [0, 0.5, 2, 0.5, 0]


@pytest.mark.parametrize(
    ("name", "convention", "size"),
    [
        ("relu", "min-norm", 125),
        ("abs", "min-norm", 2 * 128 + 1),  # two planes, and one flag
        ("maximum, number", "mean", 2 * 128 + 1),
        ("maximum, constants", "mean", 2 * 128 + 1),
        ("maximum of two", "mean", 2 * 128),  # no flag
    ],
)
def test_saved_tensor_hooks_see_the_codes(name: str, convention: str, size: int) -> None:
    x = torch.randn(1000, device="cuda", requires_grad=True)
    sizes = []
    with (
        subgrad.use(convention),
        torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t, lambda t: t),
    ):
        CALLS[name](x)
    assert sizes == [size]


def test_without_triton_the_plain_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_bitmask, "triton_kernels", lambda: None)
    x = torch.tensor([-1.0, 0.0, 1.0], device="cuda", requires_grad=True)
    with subgrad.use("mean"):
        out = torch.relu(x)
    assert not is_packed(out)
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == [0, 0.5, 1]


def test_small_calls_are_left_to_torch_where_it_is_right() -> None:
    set_packed("auto")
    sizes = (16, cuda_bitmask.SMALLEST)
    small, large = (torch.randn(size, device="cuda", requires_grad=True) for size in sizes)
    with subgrad.use("min-norm"):
        assert not is_packed(F.relu6(small))
        assert not is_packed(torch.relu(large))  # which keeps its result, as the next layer does
        # Launched from Python a mask costs more than it spares; with the C++ part see `unwatched.py`.
        assert not is_packed(F.relu6(large))
    with subgrad.use("mean"):
        assert is_packed(F.relu6(small))
        assert is_packed(F.relu6(large))


def test_captured_graphs_replay_packed_masks() -> None:
    x = torch.zeros(4096, device="cuda", requires_grad=True)

    def step() -> Tensor:
        return torch.autograd.grad(torch.clamp(x, 0, 1), x, torch.full_like(x, 2.0))[0]

    with subgrad.use("mean"):
        with torch.cuda.stream(torch.cuda.Stream()):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step()
    with torch.no_grad():
        x[::2] = 0.5
    graph.replay()
    assert found[:4].tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_small_calls(name: str, dtype: torch.dtype) -> None:
    """Where torch's own kernel is right, it is called."""
    set_packed("auto")
    call, x = (CALLS | IN_PLACE)[name], every_number(dtype, "cuda")
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            found = outcome(call, x)
            set_packed("never")
            for one, other in zip(found, outcome(call, x), strict=True):
                assert_same_bits(one, other)
            set_packed("auto")


def test_tensors_that_are_negated_or_zero_without_their_memory_showing_it() -> None:
    z = torch.randn(64, dtype=torch.complex64, device="cuda", requires_grad=True)

    def gradient() -> Tensor:
        x = z.conj().imag
        assert x.is_neg()
        out = torch.clamp(x, -0.5, 0.5)
        return torch.autograd.grad(
            out, z, torch._efficientzerotensor((64,), device="cuda") + cotangent(out).nan_to_num()
        )[0]

    with subgrad.use("mean"):
        found = gradient()
        set_packed("never")
        torch.testing.assert_close(found, gradient(), equal_nan=True)
