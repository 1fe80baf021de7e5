"""Layers that torch runs as one operator, which hides its kinks or has no forward mode, in programs on their kinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad

Function = Callable[[Tensor], Tensor]
FURTHER = 1e-7
CLOSE = 1e-4


@dataclass(frozen=True)
class Layer:
    """A layer, by how it is made and the shape of what it is applied to."""

    make: Callable[[], Function]
    shape: tuple[int, ...]

    def program(self, device: str, dtype: torch.dtype = torch.float64) -> tuple[Function, Tensor]:
        """A scalar program that meets kinks before and behind the layer, and a point where it does."""
        torch.manual_seed(0)
        layer, x = self.make(), torch.randn(self.shape).round()
        if isinstance(layer, nn.Module):
            layer = layer.to(device, dtype)

        def run(x: Tensor) -> Tensor:
            found: Any = layer(x.abs())
            out = found[0] if isinstance(found, tuple) else found
            return F.relu(out * torch.arange(out.shape[-1], device=device)).sum() + x.abs().sum()

        return run, x.to(device, dtype)


def attention(**options: Any) -> Function:
    def attend(x: Tensor) -> Tensor:
        keys = x[:, :2] if options.get("enable_gqa") else x
        mask = options.get("attn_mask")
        given = options if mask is None else {**options, "attn_mask": mask.to(x.device)}
        return F.scaled_dot_product_attention(x, keys + 1, keys.flip(-1), **given)

    return attend


MASK = torch.tensor([[True, False, True], [True, True, False], [False, True, True]])
RECURRENT = {
    "LSTM": Layer(lambda: nn.LSTM(4, 3, num_layers=2), (3, 2, 4)),
    "LSTM with projections": Layer(lambda: nn.LSTM(4, 3, proj_size=2), (3, 2, 4)),
    "GRU": Layer(lambda: nn.GRU(4, 3, bidirectional=True), (3, 2, 4)),
    "RNN": Layer(lambda: nn.RNN(4, 3), (3, 2, 4)),
    "RNN with relu": Layer(lambda: nn.RNN(4, 3, num_layers=2, nonlinearity="relu"), (3, 2, 4)),
    "LSTMCell": Layer(lambda: nn.LSTMCell(4, 3), (2, 4)),
    "RNNCell with relu": Layer(lambda: nn.RNNCell(4, 3, nonlinearity="relu"), (2, 4)),
}
ATTENTION = {
    "attention": Layer(attention, (2, 4, 3, 4)),
    "causal attention": Layer(lambda: attention(is_causal=True, scale=0.7), (2, 4, 3, 4)),
    "masked attention": Layer(lambda: attention(attn_mask=MASK), (2, 4, 3, 4)),
    "grouped attention": Layer(lambda: attention(enable_gqa=True), (2, 4, 3, 4)),
    "MultiheadAttention": Layer(lambda: _to_itself(nn.MultiheadAttention(4, 2, batch_first=True)), (2, 3, 4)),
}
NORMALISED = {
    "BatchNorm2d": Layer(lambda: nn.BatchNorm2d(3, track_running_stats=False), (4, 3, 2, 4)),
    "BatchNorm1d without weights": Layer(lambda: nn.BatchNorm1d(4, affine=False, track_running_stats=False), (6, 4)),
    "InstanceNorm2d": Layer(lambda: nn.InstanceNorm2d(3), (2, 3, 4, 4)),
    "GroupNorm": Layer(lambda: nn.GroupNorm(2, 4), (3, 4, 4)),
    "LayerNorm": Layer(lambda: nn.LayerNorm((3, 4)), (2, 3, 4)),
    "LayerNorm without weights": Layer(lambda: nn.LayerNorm(4, elementwise_affine=False), (2, 3, 4)),
}
POOLED = {
    "max_pool2d": Layer(lambda: nn.MaxPool2d(2), (2, 3, 4, 4)),
    "max_pool2d that overlaps": Layer(lambda: nn.MaxPool2d(3, 2, padding=1, ceil_mode=True), (2, 3, 6, 6)),
    "max_pool2d with holes": Layer(lambda: nn.MaxPool2d((2, 1), dilation=2), (2, 3, 6, 6)),
    "max_pool2d of many channels": Layer(lambda: nn.MaxPool2d(2), (2, 8, 4, 4)),
    "max_pool3d": Layer(lambda: nn.MaxPool3d(2), (2, 2, 4, 4, 4)),
    "adaptive_max_pool2d": Layer(lambda: nn.AdaptiveMaxPool2d((2, 3)), (2, 3, 5, 7)),
}
DISTANCES = {
    "cdist": Layer(lambda: lambda x: torch.cdist(x, x.flip(0)), (4, 3)),
    "pdist": Layer(lambda: F.pdist, (4, 3)),
}
DROPOUT = {
    "dropout": Layer(lambda: nn.Dropout(0.5), (4, 5)),
    "LSTM with dropout": Layer(lambda: nn.LSTM(4, 3, num_layers=2, dropout=0.5), (3, 2, 4)),
    "RNN with relu and dropout": Layer(lambda: nn.RNN(4, 3, num_layers=2, dropout=0.5, nonlinearity="relu"), (3, 2, 4)),
    "attention with dropout": Layer(lambda: attention(dropout_p=0.5), (2, 4, 3, 4)),
}


def _to_itself(layer: nn.Module) -> nn.Module:
    class ToItself(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x, x, x, need_weights=False)[0]

    return ToItself()


# All that keep their values on a CUDA device, where fused dropout is refused.
LAYERS = {**RECURRENT, **ATTENTION, **NORMALISED, **POOLED, **DISTANCES, "dropout": DROPOUT["dropout"]}


def seeded(run: Callable[[Tensor], Any], x: Tensor) -> Any:
    torch.manual_seed(1)
    return run(x)


def assert_values_are_those_of_the_program(run: Function, x: Tensor) -> None:
    """To the bit; also the second time, when kinks are expected and not looked for."""
    wanted, gradient = seeded(run, x), subgrad.value_and_grad(run)
    for _ in range(2):
        value, _ = seeded(gradient, x)
        assert torch.equal(value, wanted)


def assert_gradient_is_that_a_little_further_on(run: Function, x: Tensor) -> None:
    found = seeded(subgrad.element(run), x)
    assert found.kinks > 0
    further = (x + FURTHER * found.direction).requires_grad_()
    (wanted,) = torch.autograd.grad(seeded(run, further), further)
    torch.testing.assert_close(found.gradient, wanted, rtol=CLOSE, atol=CLOSE)
