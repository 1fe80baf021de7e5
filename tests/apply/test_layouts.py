"""Tensors that are no plain strided memory take the convention's element or are refused by name, never torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import subgrad

VALUES = torch.tensor([-1.0, 0.0, 6.0, 0.0, 6.0, 7.0, 0.0])
COTANGENT = torch.arange(1.0, 8.0)
OTHER_LAYOUTS = {
    "sparse_coo": lambda: VALUES.to_sparse(),
    "sparse_csr": lambda: VALUES[None].to_sparse_csr(),
    "_mkldnn": lambda: VALUES.to_mkldnn(),
    "nested torch.strided": lambda: torch.nested.nested_tensor([VALUES, VALUES[:3]]),
}


def jagged(values: Tensor) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 3, 7]))


@pytest.mark.parametrize("convention", ["mean", "right", "min-norm", "torch-2.13", "torch"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.clamp(x, 0.0, 6.0),
        torch.relu,
        torch.abs,
        lambda x: torch.nn.functional.hardtanh(x, 0.0, 6.0),
    ],
    ids=["clamp", "relu", "abs", "hardtanh"],
)
def test_jagged_tensors_take_the_element_entry_by_entry(function: object, convention: str) -> None:
    dense, values = (VALUES.clone().requires_grad_() for _ in range(2))
    with subgrad.use(convention):
        expected = torch.autograd.grad(function(dense), dense, COTANGENT)[0]
        out = function(jagged(values))
    assert out.layout is torch.jagged
    assert torch.equal(out.values(), function(VALUES))
    assert torch.equal(torch.autograd.grad(out.values(), values, COTANGENT)[0], expected)


def test_two_jagged_tensors_share_their_ties() -> None:
    one, other = (VALUES.clone().requires_grad_() for _ in range(2))
    left = jagged(one)
    right = torch.nested.nested_tensor_from_jagged(other, left.offsets())
    with subgrad.use(subgrad.Convention("min-norm", maximum=0.25)):
        out = torch.maximum(left, right)
    first, second = torch.autograd.grad(out.values(), (one, other), COTANGENT)
    assert torch.equal(first, 0.25 * COTANGENT)
    assert torch.equal(second, 0.75 * COTANGENT)


@pytest.mark.parametrize("layout", OTHER_LAYOUTS)
def test_other_layouts_are_refused_where_torch_would_take_another_element(layout: str) -> None:
    x = OTHER_LAYOUTS[layout]().requires_grad_()
    with subgrad.use("mean"), pytest.raises(NotImplementedError, match=f"no rule for .* layouts: .*{layout}"):
        torch.relu(x)
    with subgrad.use("min-norm"):  # whose element is torch's own
        assert torch.relu(x).requires_grad


def test_writing_into_jagged_tensors_is_refused() -> None:
    x = jagged(VALUES.clone().requires_grad_()) * 1
    with subgrad.use("mean"), pytest.raises(NotImplementedError, match=r"nested torch\.jagged"):
        x.relu_()
