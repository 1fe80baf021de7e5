"""On the CPU, without the C++ part: `where` gives the gradients of the general rule to the bit, where it is taken."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from kernels.calls import CALLS, DTYPES, IN_PLACE, assert_same_bits, every_number, outcome
from kernels.fronts import without_front
from kernels.without import without
from torch import Tensor

import subgrad
from subgrad.kernels import cuda_bitmask
from subgrad.kernels.cpu_where import CpuWhere
from subgrad.torch_internals.versions import COLUMN


@pytest.fixture(autouse=True)
def no_front() -> Iterator[None]:
    """It would answer before."""
    with without_front():
        yield


TAKEN = (
    *("clamp", "clamp(min=-0.0)", "clamp(min=)", "clamp(max=)", "clamp_min", "clamp_max"),
    *("maximum, number", "maximum, zero", "minimum, number", "clamp(min=tensor)", "clamp(max=tensor)"),
    *("clamp_", "clamp_min_"),
)
OF_TENSORS = ("maximum, number", "maximum, zero", "minimum, number", "clamp(min=tensor)", "clamp(max=tensor)")
LEFT_ALONE = ("clamp, closed", "clamp, inexact in 16 bits", "minimum, nan", "fmax, number", "maximum of two", "relu_")


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
            with without(CpuWhere):
                plain = outcome(call, x)
        for one, other in zip(found, plain, strict=True):
            assert_same_bits(one, other)
        assert_same_bits(found[0], call(x.clone()))


def is_by_where(out: Tensor) -> bool:
    assert out.grad_fn is not None
    # A copy comes from what it is written over, and from what is written.
    return "Where" in (out.grad_fn.next_functions[-1][0] if "Copy" in out.grad_fn.name() else out.grad_fn).name()


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_taken_where_torch_gives_another_element(name: str) -> None:
    """From 2.14 on torch blocks at the bounds of `clamp` itself."""
    call, x = (CALLS | IN_PLACE)[name], torch.randn(20000, requires_grad=True)
    with subgrad.use("min-norm"):
        assert is_by_where(call(x * 1)) == (COLUMN == "2.13" or name in OF_TENSORS)
    with subgrad.use("mean"):  # of which entries pass in part
        assert not is_by_where(call(x * 1))
    assert not is_by_where(call(x * 1))


def test_second_derivatives_are_those_of_the_plain_path() -> None:
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0]).repeat(4000).requires_grad_()
    v = torch.linspace(-1, 1, 20000, requires_grad=True)
    with subgrad.use("min-norm"):
        out = torch.maximum(x, torch.tensor(0.0))
    assert is_by_where(out)
    (first,) = torch.autograd.grad(out * x, x, v, create_graph=True)
    found = torch.autograd.grad(first, (x, v), torch.ones_like(x))
    torch.testing.assert_close(found[0], torch.where(x > 0, 2 * v, 0))
    torch.testing.assert_close(found[1], torch.where(x > 0, 2 * x, 0))


@pytest.mark.parametrize(("mode", "smallest"), [("auto", sys.maxsize), ("always", 1), ("never", sys.maxsize)])
def test_packed_masks_can_be_switched(mode: str, smallest: int) -> None:
    """``auto`` is here without the C++ part: what torch gives too is torch's own."""
    subgrad.kernels.set_packed(mode)
    assert cuda_bitmask.smallest() == smallest
    subgrad.kernels.set_packed("auto")


def test_an_unknown_switch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown mode 'sometimes' of packed masks. Known: auto, always, never"):
        subgrad.kernels.set_packed("sometimes")
