"""Two programs that are trained in every mode: torchvision's MobileNetV2 and the OLMo of transformers.

Both hold pruned channels or neurons at zero, and others at a bound, from step to step, as sparse training does. Those
meet their kink exactly, at every step and in every precision: at 0 and 6 of ReLU6, at 0 of relu, and at the bound to
which OLMo clamps its values in place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torchvision.models import MobileNetV2
from transformers import OlmoConfig, OlmoForCausalLM

STEPS, HALVES, BATCH = 20, 2, 4  # a step is on two halves of a batch, each of four
Named = dict[str, Tensor]
Held = tuple[str, slice, float]


@dataclass(frozen=True)
class Step:
    weights: Named
    gradients: Named


@dataclass(frozen=True)
class Program:
    """A model, its loss on random data, and which rows of which parameters are held at which value."""

    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Generator], Tensor]
    held: tuple[Held, ...]

    def start(self) -> nn.Module:
        torch.manual_seed(0)
        model = self.model().double().train()
        self.hold(model)
        return model

    @torch.no_grad()
    def hold(self, model: nn.Module) -> None:
        for name, rows, value in self.held:
            model.get_parameter(name)[rows] = value

    def backward(
        self,
        model: nn.Module,
        step: int,
        halves: range = range(HALVES),
        forward: AbstractContextManager[object] | None = None,
    ) -> None:
        """Of the mean loss over the halves, each with batch statistics of its own, as two processes have them."""
        model.zero_grad()
        for half in halves:
            with forward or nullcontext():
                loss = self.loss(model, Generator().manual_seed(HALVES * step + half))
            (loss / len(halves)).backward()


def train(
    program: Program,
    mode: Callable[[nn.Module], nn.Module] = lambda model: model,
    halves: range = range(HALVES),
) -> list[Step]:
    """Train in a mode, along its own path."""
    model = program.start()
    running, optimizer = mode(model), torch.optim.SGD(model.parameters(), lr=0.05)
    steps = []
    for step in range(STEPS):
        weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        program.backward(running, step, halves)
        steps.append(Step(weights, gradients(model)))
        optimizer.step()
        program.hold(model)
    return steps


def autocast_along(program: Program, path: list[Step]) -> list[Named]:
    """The gradients in bfloat16 at the weights of a path: by itself, rounding would lead it elsewhere."""
    model, found = program.start().float(), []
    for step, at in enumerate(path):
        model.load_state_dict(at.weights, strict=False)  # buffers have no part in these gradients
        program.backward(model, step, forward=torch.autocast("cpu", torch.bfloat16))
        found.append(gradients(model))
    return found


def gradients(model: nn.Module) -> Named:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


# MobileNetV2, of one block.


def mobilenet() -> nn.Module:
    block = [1, 32, 1, 1]  # expansion, channels, repeats, stride
    return MobileNetV2(num_classes=4, width_mult=0.5, inverted_residual_setting=[block], dropout=0.0)


def mobilenet_loss(model: nn.Module, data: Generator) -> Tensor:
    images = torch.randn(BATCH, 3, 16, 16, generator=data).to(next(model.parameters()))
    return F.cross_entropy(model(images), torch.randint(4, (BATCH,), generator=data))


# Not of the first layer: a depthwise one follows, whose normalisation of a constant channel would be rounding alone.
MOBILENET_HELD = tuple(
    held
    for layer in ("features.1.conv.0", "features.2")
    for held in (
        (f"{layer}.1.weight", slice(0, 4), 0.0),
        (f"{layer}.1.bias", slice(0, 2), 0.0),
        (f"{layer}.1.bias", slice(2, 4), 6.0),
    )
)


# OLMo, of one layer, with relu in its feed-forward part.

CLIP = 1.0


def olmo() -> nn.Module:
    config = OlmoConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
        eos_token_id=1,
        hidden_act="relu",
        clip_qkv=CLIP,
        attention_bias=True,
        attn_implementation="eager",  # the compiled flash attention of torch 2.11 refuses float64
        use_cache=False,
    )
    return OlmoForCausalLM(config)


def olmo_loss(model: nn.Module, data: Generator) -> Tensor:
    tokens = torch.randint(32, (BATCH, 8), generator=data)
    return model(input_ids=tokens, labels=tokens).loss


OLMO_HELD = (
    ("model.layers.0.mlp.gate_proj.weight", slice(0, 8), 0.0),
    ("model.layers.0.self_attn.v_proj.weight", slice(0, 4), 0.0),
    ("model.layers.0.self_attn.v_proj.bias", slice(0, 4), CLIP),
)


PROGRAMS = {
    "MobileNetV2": Program(mobilenet, mobilenet_loss, MOBILENET_HELD),
    "OLMo": Program(olmo, olmo_loss, OLMO_HELD),
}
