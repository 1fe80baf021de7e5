"""The kernels of packed masks without a GPU: how codes are written and read, to the bit."""

from __future__ import annotations

import pytest
from kernels.processes import run_apart


def test_kernels_by_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_apart("interpreted.py", TRITON_INTERPRET="1")
