"""On CUDA: ties in windows are found, and which of the tied entries is ahead."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from kernels.windows import LAYOUTS, NAMES, POOLINGS, distinct, integers
from torch import Tensor

import subgrad
from subgrad.kernels.cuda_window_scan import look_ahead, tied_windows
from subgrad.kinks.conditions import tied_in_windows
from subgrad.kinks.pooling_windows import regular

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLINGS)
def test_ties_are_found(name: str, layout: str) -> None:
    """Distinct entries have none; one repeated entry is found wherever it lies in one window with its equal."""
    arguments = dict(zip(NAMES, POOLINGS[name], strict=True))

    def found(x: Tensor) -> bool:
        flag = tied_windows(x, arguments)
        assert flag is not None
        return bool(flag)

    def counted(x: Tensor) -> int:
        tied = tied_windows(x, arguments)
        assert tied is not None
        wanted = tied_in_windows(x, regular(x, *POOLINGS[name])).sum()
        assert tied == wanted
        return int(tied)

    x = distinct("cuda", LAYOUTS[layout])
    assert not found(x)
    assert counted(x) == 0
    assert counted(integers(torch.float32, "cuda", LAYOUTS[layout])) > 10
    for n, c, i, j in ((0, 0, 0, 0), (1, 2, 4, 6), (0, 1, 8, 8)):
        tied = x.clone(memory_format=torch.preserve_format)
        tied[n, c, max(i - 2, 0) : i + 2, max(j - 1, 0) : j + 2] = 1e6
        assert found(tied)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLINGS)
def test_of_tied_entries_the_one_ahead_is_found(name: str, layout: str, last: bool) -> None:
    """As among the largest entries of each window, one window after the other."""
    x, arguments = integers(torch.float32, "cuda", LAYOUTS[layout]), dict(zip(NAMES, POOLINGS[name], strict=True))
    tangent = torch.randint(-1, 2, x.shape, generator=torch.Generator().manual_seed(1)).to(x)
    values, indices = torch.ops.aten.max_pool2d_with_indices(x, *POOLINGS[name])
    found = look_ahead(x, tangent, values, indices, arguments, last)
    assert found is not None
    windows = regular(x.cpu(), *POOLINGS[name])
    flat, ahead, best = (each.cpu().flatten(-2) for each in (x, tangent, values))
    chosen = found[0].cpu().flatten(-2)
    levels = False
    for n, c, output in product(*map(range, best.shape)):
        places = windows.positions[output][windows.valid[output]].tolist()
        tied = [place for place in places if flat[n, c, place] == best[n, c, output]]
        if len(tied) < 2:
            wanted = indices.cpu().flatten(-2)[n, c, output].item()
        else:
            most = max(float(ahead[n, c, place]) for place in tied)
            level = [place for place in tied if ahead[n, c, place] == most]
            levels, wanted = levels or len(level) > 1, level[-1 if last else 0]
        assert chosen[n, c, output] == wanted
    assert [bool(flag) for flag in found[1:]] == [True, levels]


def test_windows_in_space_are_not_taken_for_those_of_images() -> None:
    """Without a batch they have four dimensions, too."""
    x = integers(torch.float32, "cuda").nan_to_num()[:, :2].requires_grad_()
    arguments = {"self": x, **dict(zip(NAMES, ([1, 2, 2], [], [0, 0, 0], [1, 1, 1], False), strict=True))}
    wanted = tied_in_windows(x, regular(x, [1, 2, 2])).sum()
    assert tied_windows(x, arguments) == wanted
    with subgrad.use("min-norm"):
        found, plane = F.max_pool3d(x, (1, 2, 2)), F.max_pool2d(x, 2)
    v = torch.linspace(-1, 2, found.numel(), device="cuda").view_as(found)
    torch.testing.assert_close(*(torch.autograd.grad(out, x, v)[0] for out in (found, plane)))
