"""Tied windows share by torch's operators as they do by the plain rule; in second derivatives and batches too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels.calls import cotangent
from kernels.windows import NAMES, POOLINGS, integers, pooled
from torch import Tensor

import subgrad
from subgrad.apply.gates import through
from subgrad.kernels.windows import Geometry, _Shared
from subgrad.kinks.windows import regular


def shared(x: Tensor, pooling: tuple[Any, ...]) -> Tensor:
    """As on a CUDA device, but with bits from torch's operators."""
    values, indices = torch.ops.aten.max_pool2d_with_indices(x.detach(), *pooling)
    hits = [(entries == values) & exists for entries, exists in regular(x, *pooling).columns(x.detach())]
    count = torch.stack(hits).sum(0)
    bits = torch.stack([hit.long() << number for number, hit in enumerate(hits)]).sum(0) + (count << 11)
    bits = torch.where(count > 1, bits, 0).short()
    return through(_Shared, x, values, indices, bits, Geometry(pooling, (), ()))


@pytest.mark.parametrize("name", ["side by side", "overlapping", "spread out"])
def test_gradients_and_second_derivatives_are_those_of_the_plain_rule(name: str) -> None:
    pooling, x = POOLINGS[name], integers(torch.float64, "cpu").requires_grad_()
    with subgrad.use("min-norm"):
        plain = pooled(x, pooling)
    found = shared(x, pooling)
    v = cotangent(plain).nan_to_num(0.25, 1.0, -1.0).requires_grad_()
    firsts = [torch.autograd.grad(out, x, v, create_graph=True)[0] for out in (found, plain)]
    torch.testing.assert_close(firsts[0].nan_to_num(9), firsts[1].nan_to_num(9))
    w = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)
    seconds = [torch.autograd.grad(each, (x, v), w, allow_unused=True) for each in firsts]
    assert seconds[0][0] is not None
    assert not seconds[0][0].any()
    torch.testing.assert_close(seconds[0][1], seconds[1][1], equal_nan=True)


def test_cotangents_may_be_batched() -> None:
    pooling, x = POOLINGS["overlapping"], integers(torch.float64, "cpu").requires_grad_()
    found = shared(x, pooling)
    several = torch.randn(3, *found.shape, dtype=torch.float64)
    (batched,) = torch.autograd.grad(found, x, several, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(found, x, each, retain_graph=True)[0] for each in several]
    torch.testing.assert_close(batched, torch.stack(singly))


def test_geometry_is_for_cuda_only() -> None:
    x = integers(torch.float32, "cpu")
    arguments = dict(zip(NAMES, POOLINGS["side by side"], strict=True))
    assert Geometry.of(x, pooled(x, POOLINGS["side by side"]), arguments) is None
