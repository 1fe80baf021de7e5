"""Which calls of max-pooling the kernels are made for, and how they see them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels.fronts import without_front
from kernels.windows import ALL_POOLINGS, LARGE, NAMES, POOLINGS, arguments_of, input_of, integers, pooled_with_indices

import subgrad
from subgrad.apply.call import Call
from subgrad.apply.operators import operator
from subgrad.apply.plan import Plan
from subgrad.conventions import convention
from subgrad.kernels import cuda_window_scan
from subgrad.kernels.max_pool import MaxPool, geometry_of, is_channels_last
from subgrad.kernels.native import build

WORDS = {
    "overlapping": torch.int16,
    "large": torch.int32,
    "in space, overlapping": torch.int32,
    "every bit": torch.int64,
}


@pytest.mark.parametrize("name", ALL_POOLINGS)
def test_results_have_the_shape_of_torchs(name: str) -> None:
    x = input_of(name, torch.float32, "cpu", "contiguous")
    geometry = geometry_of(x, arguments_of(name))
    assert geometry is not None
    assert geometry.out == pooled_with_indices(x, name)[0].shape
    assert geometry.word.itemsize <= 2 or geometry.entries > 9 or not geometry.is_small
    assert geometry.is_small == (name not in (*LARGE, "every bit"))
    assert geometry.word is WORDS.get(name, geometry.word)


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((2, 3, 9, 12), ([3, 3], [1, 1], [2, 2], [1, 1], False)),  # more padding than half a window
        ((2, 3, 9, 12), ([10, 1], [1, 1], [0, 0], [1, 1], False)),  # no output
        ((2, 3, 0, 12), ([2, 2], [], [0, 0], [1, 1], False)),
        ((9, 12), ([2, 2], [], [0, 0], [1, 1], False)),
        ((2, 3, 9, 12), ([2, 2], [0, 0], [0, 0], [1, 1], False)),
    ],
)
def test_other_calls_are_left_alone(shape: tuple[int, ...], given: tuple[Any, ...]) -> None:
    assert geometry_of(torch.zeros(shape), dict(zip(NAMES, given, strict=True))) is None


def test_tensors_on_the_cpu_are_for_the_loops_alone() -> None:
    x, arguments = integers(torch.float32, "cpu"), dict(zip(NAMES, POOLINGS["side by side"], strict=True))
    call = Call(
        operator("max_pool2d_with_indices"), "max_pool2d_with_indices", {}, convention("min-norm"), None, (x,), {}
    )
    plan = Plan(frozenset(("self",)), (), shares=True)
    assert (MaxPool().accepts(plan, call) is None) == (build.loops() is None)
    with without_front():
        assert MaxPool().accepts(plan, call) is None
    assert cuda_window_scan.tied_windows(x, arguments) is None


def test_a_volume_without_a_batch_has_no_channels_that_come_last() -> None:
    """Its strides may look like those of images; torch's own kernel on the CPU refuses them."""
    x = torch.zeros(3, 4, 6, 8).contiguous(memory_format=torch.channels_last)
    given = ([2, 2, 2], [], [0, 0, 0], [1, 1, 1], False)
    assert geometry_of(x, dict(zip(NAMES, given, strict=True))) is None
    with subgrad.use("min-norm"), pytest.raises(RuntimeError, match="memory format"):
        F.max_pool3d(x.requires_grad_(), 2)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 1, 1, 1), (2, 3, 1, 5), (2, 1, 1, 5)])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)])
def test_results_are_laid_out_as_torchs(shape: tuple[int, ...], step: int, order: tuple[int, ...]) -> None:
    """Also where entries do not lie side by side, and where a dimension of one entry could have any stride."""
    places = [order.index(dim) for dim in range(4)]
    x = torch.zeros([shape[dim] * step for dim in order])[::step, ::step, ::step, ::step].permute(places)
    assert x.shape == shape
    layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
    own = F.max_pool2d(x, 1, return_indices=True)[0]
    assert own.stride() == torch.empty(own.shape, memory_format=layout).stride()
