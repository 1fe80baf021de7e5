"""No Python runs for a call like an earlier one. Run by `test_front.py`, in a process where nothing is watched:

what an audit or `subgrad.grad` has registered stays, and lies over the front.
"""

from __future__ import annotations

import pytest
import torch
from kernels.calls import CALLS, IN_PLACE
from kernels.fronts import python_run_by, without_front

import subgrad
from subgrad.apply import dispatch
from subgrad.apply.plan import INSTALLED
from subgrad.kernels import packed

# What torch does not do right, and a mask by one number would not do for.
LEFT_TO_PYTHON = {
    *("leaky_relu(-0.3)", "softshrink(0)", "minimum, nan", "fmax, number"),
    *("maximum, constants", "minimum, other only"),
    *(("clamp, closed",) if INSTALLED == "2.13" else ()),
}
MORE_THAN_A_MASK = ("leaky_relu", "maximum, number")
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


@pytest.mark.gpu
@pytest.mark.parametrize("name", SOME)
def test_cuda_small_tensors_and_large_ones_are_packed(name: str) -> None:
    call = (CALLS | IN_PLACE)[name]
    small = [torch.randn(16, device="cuda", requires_grad=True) * 1 for _ in range(2)]
    large = [torch.randn(packed.SMALLEST, device="cuda", requires_grad=True) * 1 for _ in range(2)]
    with subgrad.use("min-norm"):
        call(small[0])
        assert not python_run_by(lambda: call(small[1]))
        call(large[0])
        seen = python_run_by(lambda: call(large[1]))
    assert bool(seen) == (name in MORE_THAN_A_MASK), seen
