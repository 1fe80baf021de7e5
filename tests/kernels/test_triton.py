"""The Triton kernels without a GPU: what they write and read, to the bit."""

from __future__ import annotations

import pytest
from kernels.processes import run_apart


@pytest.mark.parametrize("file", ["interpreted.py", "interpreted_max_pool.py"])
def test_kernels_by_the_interpreter(file: str) -> None:
    pytest.importorskip("triton")
    run_apart(file, TRITON_INTERPRET="1")
