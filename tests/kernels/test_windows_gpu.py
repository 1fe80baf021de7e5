"""On CUDA: ties in windows are found, and shared as by the plain rule; windows without are torch's own to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from kernels.calls import DTYPES, assert_same_bits, cotangent
from kernels.windows import LAYOUTS, NAMES, POOLINGS, distinct, integers, pooled
from torch import Tensor

import subgrad
from subgrad.apply import shortcuts
from subgrad.kernels.windows import OnCuda
from subgrad.kinks.places import tied_in_windows
from subgrad.kinks.windows import regular

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as without:
        yield without


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLINGS)
def test_ties_are_found(name: str, layout: str) -> None:
    """Distinct entries have none; one repeated entry is found wherever it lies in one window with its equal."""
    arguments = dict(zip(NAMES, POOLINGS[name], strict=True))

    def found(x: Tensor) -> bool:
        flag = OnCuda().ties(x, pooled(x, POOLINGS[name]), arguments)
        assert flag is not None
        return bool(flag)

    def counted(x: Tensor) -> int:
        tied = OnCuda().ties(x, None, arguments)
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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLINGS)
def test_gradients_are_those_of_the_plain_rule(
    name: str, layout: str, dtype: torch.dtype, plainly: pytest.MonkeyPatch
) -> None:
    pooling, x = POOLINGS[name], integers(dtype, "cuda", LAYOUTS[layout]).requires_grad_()
    with subgrad.use("min-norm"):
        found = pooled(x, pooling)
        assert ("Shared" in type(found.grad_fn).__name__) == (name != "spread out")
        plainly.setattr(shortcuts, "_for_windows", [])
        plain = pooled(x, pooling)
    assert_same_bits(found, plain)
    v = (cotangent(plain).nan_to_num(0.25, 1.0, -1.0) * 8).round() / 8
    # The plain rule adds what ties share to zeros, by which those that are negative lose their sign.
    one, other = (torch.autograd.grad(out, x, v)[0] + 0.0 for out in (found, plain))
    if name == "side by side":
        assert_same_bits(one, other)
    else:  # sums over windows, in another order
        torch.testing.assert_close(one, other, rtol=2e-2 if x.element_size() == 2 else 1e-6, atol=1e-2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLINGS)
def test_windows_without_ties_are_torchs_own(name: str, layout: str) -> None:
    x = distinct("cuda", LAYOUTS[layout]) / 7
    x[0, 0, :4, :4] = 1e6
    x.requires_grad_()
    own = pooled(x, POOLINGS[name])
    v = torch.randn(own.shape, device="cuda")
    with subgrad.use("min-norm"):
        found = pooled(x, POOLINGS[name])
    one, other = (torch.autograd.grad(out, x, v)[0] for out in (found, own))
    assert not torch.equal(one, other)
    one[0, 0, :4, :4] = other[0, 0, :4, :4] = 0
    assert_same_bits(one, other)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLINGS)
def test_of_tied_entries_the_one_ahead_is_found(name: str, layout: str, last: bool) -> None:
    """As among the largest entries of each window, one window after the other."""
    x, arguments = integers(torch.float32, "cuda", LAYOUTS[layout]), dict(zip(NAMES, POOLINGS[name], strict=True))
    tangent = torch.randint(-1, 2, x.shape, generator=torch.Generator().manual_seed(1)).to(x)
    values, indices = torch.ops.aten.max_pool2d_with_indices(x, *POOLINGS[name])
    found = OnCuda().ahead(x, tangent, values, indices, arguments, last)
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


def test_the_result_may_be_overwritten() -> None:
    x = integers(torch.float32, "cuda").nan_to_num().requires_grad_()
    with subgrad.use("min-norm"):
        kept, out = pooled(x, POOLINGS["overlapping"]), pooled(x, POOLINGS["overlapping"])
    v = torch.linspace(-1, 2, out.numel(), device="cuda").view_as(out)
    (wanted,) = torch.autograd.grad(kept, x, 2 * v)
    (found,) = torch.autograd.grad(out.mul_(2), x, v)
    torch.testing.assert_close(found, wanted)


def test_windows_in_space_are_not_taken_for_those_of_images() -> None:
    """Without a batch they have four dimensions, too."""
    x = integers(torch.float32, "cuda").nan_to_num()[:, :2].requires_grad_()
    arguments = {"self": x, **dict(zip(NAMES, ([1, 2, 2], [], [0, 0, 0], [1, 1, 1], False), strict=True))}
    assert OnCuda().ties(x, None, arguments) is None
    with subgrad.use("min-norm"):
        found, plane = F.max_pool3d(x, (1, 2, 2)), F.max_pool2d(x, 2)
    v = torch.linspace(-1, 2, found.numel(), device="cuda").view_as(found)
    torch.testing.assert_close(*(torch.autograd.grad(out, x, v)[0] for out in (found, plane)))
