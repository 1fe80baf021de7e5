"""The Triton kernels without a GPU: what they write and read, to the bit."""

from __future__ import annotations

import pytest
import torch
from kernels.processes import run_apart
from torch.torch_version import TorchVersion

INTERPRETED = [f"interpreted{part}.py" for part in ("", "_max_pool", "_compiled_max_pool", "_strong_zero")]


@pytest.mark.long
@pytest.mark.parametrize("file", INTERPRETED)
def test_kernels_by_the_interpreter(file: str) -> None:
    pytest.importorskip("triton")
    if file == "interpreted_max_pool.py" and TorchVersion(torch.__version__) < "2.14":
        pytest.skip("the kernels are the same on every torch, and the newest runs them")
    run_apart(file, TRITON_INTERPRET="1", SUBGRAD_FRONT="never")
