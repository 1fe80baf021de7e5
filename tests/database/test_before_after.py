"""Torch does the same after a gradient of a whole program, an audit and a convention as before, in one process.

`scripts/before_after.py` tries all of the database, and everything compiled.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import NO_CPU, Call
from torch import Tensor
from unchanged import is_error, outcomes

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "before_after.py"


@pytest.mark.long
def test_every_overload_with_a_kernel_does_the_same() -> None:
    # A fresh process: here kernels have been registered long ago.
    found = subprocess.run([sys.executable, SCRIPT, "--quick"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr[-2000:]
    first, *_ = found.stdout.splitlines()
    assert set(first.removeprefix("no case calls: ").split(", ")) == set(NO_CPU), first
    assert ", 0 differ" in found.stdout


def doubled(x: Tensor) -> Tensor:
    return x * 2


def in_other_bits(x: Tensor) -> Tensor:
    return x * 2 + x * 1e-7


def with_another_slope(x: Tensor) -> Tensor:
    return x * 2 + (x - x.detach())


def that_fails(x: Tensor) -> Tensor:
    raise TypeError


def that_looks_at_numbers(x: Tensor) -> Tensor:
    return x * 2 if x.sum().item() else x


def in_other_operators(x: Tensor) -> Tensor:
    return x + x


@pytest.mark.parametrize(
    ("other", "caught"),
    [
        (in_other_bits, {"forward", "func.vjp", "functionalize", "aot_eager"}),
        (with_another_slope, {"gradients", "func.grad", "func.jvp", "vmap of grad", "AOTAutograd", "make_fx"}),
        (that_fails, {"forward", "gradients", "func.grad", "vmap", "fake tensors", "fake, Python's dispatcher"}),
        (that_looks_at_numbers, {"vmap", "vmap of grad", "fake tensors", "make_fx"}),
        (in_other_operators, {"make_fx"}),
    ],
)
def test_another_outcome_is_seen(other: Callable[[Tensor], Any], caught: set[str]) -> None:
    x = torch.tensor([0.3, -1.7, 2.9], requires_grad=True)
    one, two = (outcomes(Call("planted", function, (x,))) for function in (doubled, other))
    assert {way for way in one if one[way] != two[way]} >= caught
    assert not any(map(is_error, one.values()))
