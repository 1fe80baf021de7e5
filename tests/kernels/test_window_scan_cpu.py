"""Ties of small windows that lie side by side, on the CPU: against one window after the other."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from subgrad.kernels.cpu_window_scan import FEW, look_ahead, tied_windows

NAMES: tuple[str, ...] = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
SIDE_BY_SIDE = {
    "squares": ([2, 2], [], [0, 0], [1, 1], False),
    "one number": ([3], [3], [0], [1], False),
    "lines": ([1, 2], [1, 2], [0, 0], [1, 1], True),
}
OTHERS = {
    "overlap": ([3, 3], [1, 1], [0, 0], [1, 1], False),
    "gaps": ([2, 2], [3, 3], [0, 0], [1, 1], False),
    "padding": ([2, 2], [], [1, 1], [1, 1], False),
    "dilation": ([2, 2], [], [0, 0], [2, 2], False),
    "a rest": ([4, 4], [], [0, 0], [1, 1], False),
    "volumes": ([2, 2, 2], [], [0, 0, 0], [1, 1, 1], False),
}


def entries(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-1, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def tied(x: Tensor, best: Tensor, kernel: list[int]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """By window, the entries that are as large as its largest."""
    high, wide = kernel[0], kernel[-1]
    found = {}
    for *plane, i, j in product(*map(range, best.shape)):
        places = product(range(i * high, (i + 1) * high), range(j * wide, (j + 1) * wide))
        found[(*plane, i, j)] = [each for each in places if x[(*plane, *each)] == best[(*plane, i, j)]]
    return found


@pytest.mark.parametrize("shape", [(2, 3, 6, 12), (3, 6, 6)])
@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_of_tied_entries_the_one_ahead_is_found(name: str, shape: tuple[int, ...]) -> None:
    given, x, tangent = SIDE_BY_SIDE[name], entries(*shape), entries(*shape, seed=1)
    tangent[x == 0] = -torch.inf
    arguments = dict(zip(NAMES, given, strict=True))
    best, indices = torch.ops.aten.max_pool2d_with_indices(x, *given)
    windows = tied(x, best, given[0])
    assert tied_windows(x, arguments) == sum(len(each) > 1 for each in windows.values()) > 0
    found = look_ahead(x, tangent, best, indices, arguments, last=False)
    assert found is not None
    levels = False
    for window, places in windows.items():
        ahead = [float(tangent[(*window[:-2], *place)]) for place in places]
        levels |= ahead.count(max(ahead)) > 1
        i, j = places[ahead.index(max(ahead))]  # of several the first
        assert found[0][window] == i * x.shape[-1] + j
    assert [bool(each) for each in found[1:]] == [True, levels]


def test_where_nothing_ties_nothing_is_found() -> None:
    x = torch.randperm(96).float().view(2, 2, 4, 6)
    arguments = dict(zip(NAMES, SIDE_BY_SIDE["squares"], strict=True))
    best, indices = torch.ops.aten.max_pool2d_with_indices(x, *SIDE_BY_SIDE["squares"])
    assert tied_windows(x, arguments) == 0
    found = look_ahead(x, entries(*x.shape), best, indices, arguments, last=False)
    assert found is not None
    assert torch.equal(found[0], indices)
    assert [bool(each) for each in found[1:]] == [False, False]


def test_nan_neither_ties_nor_hides_a_tie() -> None:
    x = torch.arange(16.0).view(1, 4, 4)
    arguments = dict(zip(NAMES, SIDE_BY_SIDE["squares"], strict=True))
    x[0, 0, 0] = torch.nan
    assert tied_windows(x, arguments) == 0
    x[0, 3, 2] = x[0, 3, 3]
    assert tied_windows(x, arguments) == 1
    best, indices = torch.ops.aten.max_pool2d_with_indices(x, *SIDE_BY_SIDE["squares"])
    assert look_ahead(x, entries(*x.shape), best, indices, arguments, last=False) is None


@pytest.mark.parametrize("name", OTHERS)
def test_other_windows_are_left_alone(name: str) -> None:
    x = entries(2, 3, 6, 6)
    assert tied_windows(x, dict(zip(NAMES, OTHERS[name], strict=True))) is None


def test_many_entries_are_left_alone() -> None:
    arguments = dict(zip(NAMES, SIDE_BY_SIDE["squares"], strict=True))
    assert tied_windows(entries(1, 2, FEW // 4), arguments) is not None
    assert tied_windows(entries(2, 2, FEW // 2), arguments) is None
    assert tied_windows(entries(1, 3, 6, 6).transpose(-1, -2), arguments) is None
