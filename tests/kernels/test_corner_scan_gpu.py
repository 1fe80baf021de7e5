"""On CUDA: entries on corners are counted in one pass, whatever lies in memory around them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.kernels.cuda_corner_scan import count_at

pytestmark = pytest.mark.gpu

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def entries(size: int, dtype: torch.dtype) -> Tensor:
    x = torch.randn(size, device="cuda", dtype=dtype)
    x[::5], x[1::7], x[2::11], x[3::13] = 0.0, 6.0, torch.nan, torch.inf
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 4096, 100_003, 1 << 20])
def test_entries_on_each_place_or_any_are_counted(size: int, dtype: torch.dtype) -> None:
    x = entries(size, dtype)
    for places in ((0.0,), (0.0, 6.0), (6.0, torch.inf)):
        wanted = [int((x == place).sum()) for place in places]
        found, together = count_at(x, places, False), count_at(x, places, True)
        assert found is not None
        assert together is not None
        assert (found.tolist(), int(together)) == (wanted, sum(wanted))


def test_images_with_channels_last_and_parts_of_memory() -> None:
    image = entries(2 * 8 * 6 * 6, torch.float32).view(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    part = entries(1001, torch.float32)[1:]  # which begins at no multiple of 16 bytes
    for x in (image, part):
        found = count_at(x, (0.0,), False)
        assert found is not None
        assert found.tolist() == [int((x == 0).sum())]
    assert count_at(image[:, ::2], (0.0,), False) is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_programs_find_kinks_of_two_corners_by_it(dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 7, 4097, device="cuda").to(dtype)
    for at in (None, 0.0, 6.0):
        given = x[(x != 0) & (x != 6)]
        if at is not None:
            given[1234] = at
        found = subgrad.element(lambda x: torch.nn.functional.relu6(x).double().sum())(given)
        assert found.kinks == (at is not None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_audit_counts_as_on_the_cpu(dtype: torch.dtype) -> None:
    x = torch.randint(-3, 9, (4, 8, 5, 5)).to(dtype)
    found = []
    for device in ("cpu", "cuda"):
        with subgrad.audit() as audit:
            given = x.to(device, memory_format=torch.channels_last).requires_grad_()
            for each in (torch.nn.functional.relu6(given), given.clamp(-0.7, 5), given[:, 1:].relu()):
                assert each.device.type == device
        rows = [(row.operator, row.kink, row.total.entries, row.total.hits, row.distances) for row in audit.rows]
        found.append(rows)
    assert found[0] == found[1]
