"""The Triton kernels without a GPU: what they write and read, to the bit."""

from __future__ import annotations

import os

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


@pytest.mark.long
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="which compiles nothing")
@pytest.mark.parametrize("uses", [("SUMS", "SPREADS", "DIVIDES"), ("LINES",)], ids="-".join)
def test_what_the_interpreter_runs_is_compiled_for_a_gpu_as_well(uses: tuple[str, ...]) -> None:
    """Its language has less than Python. That takes no GPU."""
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.backends.compiler")
    from subgrad.kernels import triton_strong_zero

    kernel = triton_strong_zero.spare
    given = {"BLOCK": 1024, **{name: name in uses for name in ("SUMS", "SPREADS", "DIVIDES", "LINES")}}
    types = {
        name: "*bf16" if name.endswith("_ptr") else "constexpr" if name in given else "i32" for name in kernel.arg_names
    }
    constants = {(kernel.arg_names.index(name),): value for name, value in given.items()}
    source = triton.compiler.ASTSource(fn=kernel, signature=types, constexprs=constants)
    found = triton.compile(source, target=compiler.GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert ".entry" in found.asm["ptx"]
