"""Quantisation-aware training with the packages that people use: run in an environment of theirs by `quantisation.py`.

python scripts/quantisation_worker.py eager|compiled FILE      # for every recipe and convention
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import subgrad

STEPS = 5


def torchao() -> tuple[nn.Module, int]:
    """Activations of 8 bits by token, weights of 4 bits in groups of 32."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
    activations = IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
    weights = IntxFakeQuantizeConfig(torch.int4, group_size=32)
    quantize_(model, QATConfig(activation_config=activations, weight_config=weights, step="prepare"))
    return model, 64


def small(bounded: Callable[[], nn.Module]) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), bounded(), nn.Linear(128, 128), bounded(), nn.Linear(128, 32))


def torch_ao() -> tuple[nn.Module, int]:
    """`torch.ao.quantization` in eager mode, with its own fake quantisation."""
    from torch.ao import quantization

    model = nn.Sequential(quantization.QuantStub(), small(nn.ReLU6), quantization.DeQuantStub())
    model.qconfig = quantization.get_default_qat_qconfig("x86")
    return quantization.prepare_qat(model.train()), 64


class Learned(nn.Module):
    """Written by hand, as many papers have it: round, `torch.clamp`, and a scale that is learned."""

    def __init__(self, inner: nn.Linear, bits: int = 3):
        super().__init__()
        self.inner, self.last = inner, 2 ** (bits - 1) - 1
        self.scale = nn.Parameter(inner.weight.detach().abs().amax() / self.last)

    def forward(self, x: Tensor) -> Tensor:
        level = self.inner.weight / self.scale
        level = level + (level.round() - level).detach()
        return nn.functional.linear(x, level.clamp(-self.last - 1, self.last) * self.scale, self.inner.bias)


def by_hand() -> tuple[nn.Module, int]:
    """Weights of 3 bits whose scale is learned, with `torch.clamp`."""
    model = small(nn.ReLU6)
    return nn.Sequential(*(Learned(each) if isinstance(each, nn.Linear) else each for each in model)), 64


def brevitas() -> tuple[nn.Module, int]:
    """Weights and activations of 4 bits, with scales that are learned from statistics."""
    import brevitas.nn as qnn

    layers = [
        qnn.QuantIdentity(bit_width=4, return_quant_tensor=True),
        qnn.QuantLinear(64, 128, bias=True, weight_bit_width=4),
        qnn.QuantReLU(bit_width=4, return_quant_tensor=True),
        qnn.QuantLinear(128, 32, bias=True, weight_bit_width=4),
    ]
    return nn.Sequential(*layers), 64


CONVENTIONS = ("torch", "torch-2.13", "torch-2.14", "pass-through", "straight-through")
RECIPES = {"torchao": torchao, "torch.ao.quantization": torch_ao, "brevitas": brevitas, "by hand": by_hand}


def gradients(recipe: str, convention: str, compiled: bool) -> dict[str, Any]:
    """Of the first step, by parameter, and the losses of all."""
    torch.manual_seed(0)
    model, width = RECIPES[recipe]()
    teacher = nn.Linear(width, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    called = torch.compile(model) if compiled else model
    found: dict[str, Tensor] = {}
    losses = []
    with subgrad.use(convention):
        for _ in range(STEPS):
            x = torch.randn(256, width)
            out = called(x)
            out = getattr(out, "value", out)
            loss = nn.functional.mse_loss(out, teacher(x).detach())
            optimizer.zero_grad()
            loss.backward()
            named = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
            found = found or {name: each.clone() for name, each in named.items()}
            losses.append(loss.item())
            optimizer.step()
    return {"gradients": found, "losses": losses}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mode, file = sys.argv[1:]
    chosen = CONVENTIONS if mode == "eager" else CONVENTIONS[:2]
    runs = {}
    for recipe in RECIPES:
        for convention in chosen:
            torch.compiler.reset()
            runs[recipe, convention] = gradients(recipe, convention, mode == "compiled")
    torch.save(runs, file)
