"""On the CPU: lowerings give the gradients of the plain path to the bit, and are really taken."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from kernels.calls import CALLS, DTYPES, IN_PLACE, assert_same_bits, every_number, outcome
from kernels.fronts import without_front
from torch import Tensor

import subgrad
from subgrad.kernels import lowered, packed


@pytest.fixture(autouse=True)
def no_front() -> Iterator[None]:
    """It would answer before a lowering is asked."""
    with without_front():
        yield


LOWERED = (
    *("clamp", "clamp(min=-0.0)", "clamp(min=)", "clamp(max=)", "clamp_min", "clamp_max"),
    *("maximum, number", "maximum, zero", "minimum, number", "clamp(min=tensor)", "clamp(max=tensor)"),
    *("clamp_", "clamp_min_"),
)
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
@pytest.mark.parametrize("name", [*LOWERED, *LEFT_ALONE])
def test_numbers_of_all_sizes(name: str, dtype: torch.dtype, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, x = (CALLS | IN_PLACE)[name], INPUTS[which](dtype)
    for convention in ("min-norm", "left", "mean"):
        with subgrad.use(convention):
            found = outcome(call, x)
            with monkeypatch.context() as without:
                without.setattr(lowered, "is_memory", lambda tensor: False)
                plain = outcome(call, x)
        for one, other in zip(found, plain, strict=True):
            assert_same_bits(one, other)
        assert_same_bits(found[0], call(x.clone()))


def is_lowered(out: Tensor) -> bool:
    return "Hardtanh" in type(out.grad_fn).__name__


@pytest.mark.parametrize("name", LOWERED)
def test_lowerings_are_taken(name: str) -> None:
    call, x = (CALLS | IN_PLACE)[name], torch.randn(20000, requires_grad=True)
    with subgrad.use("min-norm"):
        assert is_lowered(call(x * 1))
    with subgrad.use("mean"):
        assert not is_lowered(call(x * 1))
    assert not is_lowered(call(x * 1))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["clamp_", "clamp(min=)"])
def test_what_is_not_finite_is_left_alone(name: str, number: float) -> None:
    x = torch.randn(20000)
    x[7] = number
    with subgrad.use("min-norm"):
        out = (CALLS | IN_PLACE)[name](x.requires_grad_() * 1)
    assert is_lowered(out) == (name == "clamp(min=)" and number < 0)


def test_second_derivatives_are_those_of_the_plain_path() -> None:
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0]).repeat(4000).requires_grad_()
    v = torch.linspace(-1, 1, 20000, requires_grad=True)
    with subgrad.use("min-norm"):
        out = torch.clamp(x, 0, 1)
    assert is_lowered(out)
    (first,) = torch.autograd.grad(out * x, x, v, create_graph=True)
    found = torch.autograd.grad(first, (x, v), torch.ones_like(x))
    inside = (x > 0) & (x < 1)
    torch.testing.assert_close(found[0], torch.where(inside, 2 * v, 0))
    torch.testing.assert_close(found[1], torch.where(inside, 2 * x, x.clamp(0, 1)))


@pytest.mark.parametrize(("mode", "smallest"), [("auto", packed.SMALLEST), ("always", 1), ("never", sys.maxsize)])
def test_packed_masks_can_be_switched(mode: str, smallest: int) -> None:
    subgrad.kernels.set_packed(mode)
    assert packed.smallest() == smallest
    subgrad.kernels.set_packed("auto")


def test_an_unknown_switch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown mode 'sometimes' of packed masks. Known: auto, always, never"):
        subgrad.kernels.set_packed("sometimes")
