"""A kernel that Triton has compiled is launched by torch: with what, and where Triton has to do it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subgrad.kernels import triton_launch
from subgrad.kernels.triton_launch import Launch

SIGNATURE = {"x": "*fp32", "out": "*fp32", "size": "i32", "one": "constexpr", "bits": "i64", "BLOCK": "constexpr"}
PLAIN: dict[str, Any] = {"num_ctas": 1, "num_warps": 8, "shared": 64, "launch_pdl": False, "global_scratch_size": 0}


class Device:
    """What is launched by Triton, and what by torch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **metadata: Any):
        self.by_triton: list[tuple[Any, ...]] = []
        self.by_torch: list[tuple[Any, ...]] = []
        self.current = 0
        source = SimpleNamespace(signature=SIGNATURE)
        self.kernel = SimpleNamespace(function=1234, metadata=SimpleNamespace(**PLAIN | metadata), src=source)
        monkeypatch.setattr(triton_launch, "launch", self.launch)
        monkeypatch.setattr(triton_launch, "launch_kernel", lambda *given: self.by_torch.append(given))
        monkeypatch.setattr(triton_launch, "current_stream", lambda device: 77)
        monkeypatch.setattr(triton_launch, "current_device", lambda: self.current)
        monkeypatch.setattr(triton_launch, "_is_only_one", lambda: False)
        monkeypatch.setattr(triton_launch, "_compiled", {})

    def launch(self, name: str, programs: int, tensors: Any, numbers: Any, constants: Any, warps: int) -> None:
        self.by_triton.append((name, programs, tensors))
        triton_launch._compiled[triton_launch._key(name, tensors, numbers, constants, warps)] = self.kernel


def launched(device: Device, *tensors: torch.Tensor, times: int = 2) -> Launch:
    launch = Launch("code", 3, (5, 1, 1 << 40), (1024,))
    for _ in range(times):
        launch(*tensors)
        launch.device = 0  # which of a tensor on the CPU is None
    return launch


def test_torch_launches_what_triton_has_launched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device, x, out = Device(monkeypatch), torch.zeros(8), torch.zeros(8)
    launched(device, x, out)
    assert len(device.by_triton) == 1
    arguments = (x.data_ptr(), out.data_ptr(), 5, 1 << 40, None, None)
    assert device.by_torch == [(1234, 3, 1, 1, 8, 64, "OOilOO", arguments, 77)]


def test_pointers_between_16_bytes_and_other_devices_are_left_to_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = Device(monkeypatch), torch.zeros(9)
    launch = launched(device, x, x, times=1)
    launch(x[1:], x)
    device.current = 1
    launch(x, x)
    assert len(device.by_triton) == 3
    assert not device.by_torch
    launched(device, x[1:], x)
    assert not device.by_torch


@pytest.mark.parametrize("more", [{"num_ctas": 2}, {"launch_pdl": True}, {"global_scratch_size": 4}], ids=str)
def test_kernels_of_which_triton_does_more_are_left_to_it(more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = Device(monkeypatch, **more), torch.zeros(8)
    launched(device, x, x, times=3)
    assert len(device.by_triton) == 3
    assert not device.by_torch
