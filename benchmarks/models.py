"""Networks as people write them, small enough to read: MobileNetV2, ResNet-18, a transformer block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Activation = Callable[[], nn.Module]


class Clamp(nn.Module):
    """ReLU6 as many write it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, 0.0, 6.0)


def _convolved(
    inputs: int, outputs: int, activation: Activation | None, size: int = 3, stride: int = 1, groups: int = 1
):
    layers = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class _Inverted(nn.Module):
    """Expand, filter each channel, project; a shortcut where the shapes allow it."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int, activation: Activation):
        super().__init__()
        inner = inputs * expansion
        layers = [_convolved(inputs, inner, activation, size=1)] if expansion > 1 else []
        layers += [
            _convolved(inner, inner, activation, stride=stride, groups=inner),
            _convolved(inner, outputs, None, 1),
        ]
        self.layers, self.is_shortcut = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_shortcut else self.layers(x)


# Expansion, channels, how many, stride of the first: table 2 of the MobileNetV2 paper.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(activation: Activation, classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [_convolved(3, 32, activation, stride=2)]
    inputs = 32
    for expansion, outputs, count, first_stride in STAGES:
        for index in range(count):
            layers.append(_Inverted(inputs, outputs, first_stride if index == 0 else 1, expansion, activation))
            inputs = outputs
    layers += [_convolved(inputs, 1280, activation, size=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, classes))


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, activation: Activation):
        super().__init__()
        self.inner = nn.Sequential(
            _convolved(inputs, outputs, activation, stride=stride), _convolved(outputs, outputs, None)
        )
        self.outer = (
            nn.Identity() if stride == 1 and inputs == outputs else _convolved(inputs, outputs, None, 1, stride)
        )
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.inner(x) + self.outer(x))


def resnet_18(activation: Activation, classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [_convolved(3, 64, activation, size=7, stride=2), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [_Residual(inputs, outputs, stride, activation), _Residual(outputs, outputs, 1, activation)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class TransformerBlock(nn.Module):
    """Attention and a feed-forward layer with a kink, each after a norm."""

    def __init__(self, activation: Activation, width: int = 1024, heads: int = 16):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.to_qkv, self.from_heads = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), activation(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.to_qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        attended = F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in qkv.unbind(2)))
        x = x + self.from_heads(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.norms[1](x))
