"""A compiled graph keeps one byte an entry where entries either pass or do not, and gives the eager gradient."""

from __future__ import annotations

import pytest
import torch
from kernels.calls import assert_same_bits
from torch import Tensor

import subgrad

pytestmark = pytest.mark.compiled
SIZE = 4096


def four(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> list[Tensor]:
    return [
        torch.clamp(a, -1.0, 1.0),
        torch.clamp_min(b, 1.0),
        torch.maximum(c, torch.ones(())),
        torch.clamp(d, torch.ones(()), None),
    ]


@pytest.mark.parametrize("convention", ["min-norm", "right", "torch-2.13"])
def test_one_byte_an_entry_is_kept(convention: str) -> None:
    torch.compiler.reset()
    numbers = torch.randn(4, SIZE, generator=torch.Generator().manual_seed(0))
    numbers[:, ::7], numbers[:, ::5], numbers[:, 3] = 1.0, -1.0, float("nan")
    leaves = [row.clone().requires_grad_() for row in numbers]
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with subgrad.use(convention):
        compiled = torch.compile(four, fullgraph=True)
        compiled(*leaves)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            found = compiled(*leaves)
        wanted = four(*leaves)
    shared = 1 if convention == "torch-2.13" else 0  # maximum's ties are torch's own, which has two masks
    assert sum(kept.values()) <= (4 + shared) * SIZE + 64
    cotangents = [torch.linspace(-1, 1, SIZE)] * 4
    for one, other in zip(found, wanted, strict=True):
        assert_same_bits(one, other)
    for one, other in zip(
        torch.autograd.grad(found, leaves, cotangents), torch.autograd.grad(wanted, leaves, cotangents), strict=True
    ):
        assert_same_bits(one, other)
