"""On the CPU, without the C++ part: masks give the gradients of the general rule to the bit, where they are taken."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from kernels.calls import CALLS, DTYPES, IN_PLACE, assert_same_bits, every_number, outcome
from kernels.fronts import without_front
from kernels.without import without
from torch import Tensor

import subgrad
from subgrad.kernels import cuda_bitmask
from subgrad.kernels.cpu_mask import CpuMask
from subgrad.torch_internals.versions import COLUMN


@pytest.fixture(autouse=True)
def no_front() -> Iterator[None]:
    """It would answer before."""
    with without_front():
        yield


TAKEN = (
    *("clamp", "clamp(min=-0.0)", "clamp(min=)", "clamp(max=)", "clamp_min", "clamp_max"),
    *("maximum, number", "maximum, zero", "minimum, number", "clamp(min=tensor)", "clamp(max=tensor)"),
    *("minimum, nan", "maximum, constants", "clamp_", "clamp_min_"),
)
OF_TENSORS = tuple(name for name in TAKEN if name.startswith(("maximum", "minimum")) or "tensor" in name)
LEFT_ALONE = ("clamp, closed", "clamp, inexact in 16 bits", "fmax, number", "maximum of two", "relu_")


def numbers(dtype: torch.dtype) -> Tensor:
    return every_number(dtype, "cpu")[::3]


INPUTS = {
    "finite": lambda dtype: (lambda x: x[x.abs() < 1e4])(numbers(dtype)),
    "all": numbers,
    "strided": lambda dtype: every_number(dtype, "cpu")[:50000].reshape(-1, 2, 5)[:, 1:, ::2].nan_to_num().clamp(-9, 9),
}


@pytest.mark.parametrize("which", INPUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*TAKEN, *LEFT_ALONE])
def test_numbers_of_all_sizes(name: str, dtype: torch.dtype, which: str) -> None:
    call, x = (CALLS | IN_PLACE)[name], INPUTS[which](dtype)
    for convention in ("min-norm", "left", "right", "torch-2.13", "mean"):
        with subgrad.use(convention):
            found = outcome(call, x)
            with without(CpuMask):
                plain = outcome(call, x)
        for one, other in zip(found, plain, strict=True):
            assert_same_bits(one, other)
        assert_same_bits(found[0], call(x.clone()))


def is_masked(out: Tensor) -> bool:
    assert out.grad_fn is not None
    # A copy comes from what it is written over, and from what is written.
    node = out.grad_fn.next_functions[-1][0] if "Copy" in out.grad_fn.name() else out.grad_fn
    return "ThresholdBackward" in node.name()


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_taken_where_torch_gives_another_element(name: str) -> None:
    """From 2.14 on torch blocks at the bounds of `clamp` itself."""
    call, x = (CALLS | IN_PLACE)[name], torch.randn(20000, requires_grad=True)
    with subgrad.use("min-norm"):
        assert is_masked(call(x * 1)) == (COLUMN == "2.13" or name in OF_TENSORS)
    with subgrad.use("mean"):  # of which entries pass in part
        assert not is_masked(call(x * 1))
    assert not is_masked(call(x * 1))


def test_second_derivatives_are_those_of_the_plain_path() -> None:
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0]).repeat(4000).requires_grad_()
    v = torch.linspace(-1, 1, 20000, requires_grad=True)
    with subgrad.use("min-norm"):
        out = torch.maximum(x, torch.tensor(0.0))
    assert is_masked(out)
    (first,) = torch.autograd.grad(out * x, x, v, create_graph=True)
    found = torch.autograd.grad(first, (x, v), torch.ones_like(x))
    torch.testing.assert_close(found[0], torch.where(x > 0, 2 * v, 0))
    torch.testing.assert_close(found[1], torch.where(x > 0, 2 * x, 0))


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(1, 3),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "strided": lambda x: x[:, ::2, 1:],
    "expanded": lambda x: x[:1].expand(4, 3, 5, 2),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [name for name in TAKEN if name not in IN_PLACE])
def test_results_lie_in_memory_as_those_of_torch(name: str, view: str) -> None:
    x = VIEWS[view](torch.randn(4, 3, 5, 2, requires_grad=True))
    wanted = CALLS[name](x)
    with subgrad.use("torch-2.13" if COLUMN != "2.13" else "min-norm"):
        assert CALLS[name](x).stride() == wanted.stride()


def test_where_the_processor_flushes_subnormal_numbers_values_are_torchs_and_they_are_the_kink_at_zero() -> None:
    x = torch.full((19,), 1000, dtype=torch.int32).view(torch.float32)
    x[::2] = 0.0
    x.requires_grad_()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not")
    try:
        wanted = x.clamp(0, 1)
        with subgrad.use("pass-through"):
            out = x.clamp(0, 1)
        (gradient,) = torch.autograd.grad(out, x, torch.ones_like(x))
    finally:
        torch.set_flush_denormal(False)
    assert_same_bits(out, wanted)
    assert gradient.tolist() == [1.0] * 19


def test_what_is_kept_goes_through_hooks_for_saved_tensors() -> None:
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        kept.append(tensor.clone())
        return len(kept) - 1

    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda number: kept[number]):
        with subgrad.use("min-norm"):
            out = torch.maximum(x, torch.tensor(0.0))
        (gradient,) = torch.autograd.grad(out, x, torch.ones_like(x))
    assert gradient.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert len(kept) == 1


@pytest.mark.parametrize(("mode", "smallest"), [("auto", sys.maxsize), ("always", 1), ("never", sys.maxsize)])
def test_packed_masks_can_be_switched(mode: str, smallest: int) -> None:
    """``auto`` is here without the C++ part: what torch gives too is torch's own."""
    subgrad.kernels.set_packed(mode)
    assert cuda_bitmask.smallest() == smallest
    subgrad.kernels.set_packed("auto")


def test_an_unknown_switch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown mode 'sometimes' of packed masks. Known: auto, always, never"):
        subgrad.kernels.set_packed("sometimes")
