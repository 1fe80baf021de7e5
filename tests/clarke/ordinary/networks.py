"""Networks with zero weights, masks, padding; losses that hold derivatives of networks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from clarke.ordinary.entries import numbers, of_module, ordinary, spread


def filled(module: nn.Module) -> nn.Module:
    """With the same weights in every run, in float64."""
    for parameter in module.double().parameters():
        parameter.data = spread(*parameter.shape)
    return module


def zero(module: nn.Module) -> nn.Module:
    for parameter in module.double().parameters():
        nn.init.zeros_(parameter)
    return module


MLP = nn.Sequential(filled(nn.Linear(2, 3)), zero(nn.Linear(3, 3)), nn.ReLU(), filled(nn.Linear(3, 1)))


@of_module("networks", MLP, smooth=False)
def mlp_with_a_zero_layer(model: Any) -> Tensor:
    return ((model(numbers([[1.0, 2.0], [0.0, 1.0]])) - numbers([[0.0], [1.0]])) ** 2).mean()


@of_module("networks", nn.Sequential(filled(nn.Conv2d(1, 2, 3)), nn.ReLU(), nn.MaxPool2d(2)), smooth=True)
def convolutions_of_a_constant_image(model: Any) -> Tensor:
    out = model(torch.ones(1, 1, 5, 5, dtype=torch.float64))
    return (out * spread(*out.shape)).sum()


@of_module("networks", zero(nn.LSTM(1, 2, batch_first=True)), smooth=False)
def lstm(model: Any) -> Tensor:
    out, (h, _) = model(numbers([[[1.0], [2.0], [-1.0]]]))
    return F.relu(out).sum() + (h - 0.5).abs().sum()


@ordinary("networks", spread(3, 2).round(), smooth=False)
def causal_attention(x: Tensor) -> Tensor:
    scores = F.relu(x) @ x.T / 2**0.5
    mask = torch.ones(3, 3, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return (weights @ x).pow(2).sum()


@ordinary("networks", numbers([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]), smooth=False)
def attention_with_padding(x: Tensor) -> Tensor:
    keep = torch.tensor([[[True, True, False]]])
    out = F.scaled_dot_product_attention(F.relu(x), x, x.abs(), attn_mask=keep)
    return (out * spread(1, 3, 2)).sum()


BATCHED = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU()).double()
nn.init.eye_(BATCHED[0].weight)
nn.init.zeros_(BATCHED[0].bias)


@of_module("networks", BATCHED, smooth=False)
def batch_statistics(model: Any) -> Tensor:
    return (model(numbers([[1.0, 2.0], [-1.0, 0.0], [0.0, -2.0], [0.0, 0.0]])) * spread(4, 2)).sum()


DROPPING = nn.Sequential(zero(nn.Linear(2, 4)), nn.ReLU(), nn.Dropout(0.5), filled(nn.Linear(4, 1)))


@of_module("networks", DROPPING, smooth=False)
def dropout(model: Any) -> Tensor:
    return model(numbers([[1.0, 2.0], [3.0, 4.0]])).square().mean() + model(numbers([1.0, 1.0])).sum()


@ordinary("networks", [[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]], smooth=False)
def largest_of_bags(table: Tensor) -> Tensor:
    bags = F.embedding_bag(torch.tensor([0, 1, 2, 0]), table, torch.tensor([0, 2]), mode="max")
    return (bags * spread(2, 2)).sum()


@of_module("networks", nn.utils.parametrizations.weight_norm(filled(nn.Linear(2, 2))), smooth=False)
def weight_norm(model: Any) -> Tensor:
    out = model(numbers([[0.0, 0.0], [1.0, -1.0]]))
    return F.relu(out - numbers(spread(2).tolist())).sum() + out.square().sum()


@ordinary("networks", [0.0, 0.0], [1.0, 2.0], smooth=False)
def gradient_penalty(weight: Tensor, bias: Tensor) -> Tensor:
    real, fake = numbers([[1.0, 2.0]]), numbers([[0.0, 1.0]])
    critic = lambda x: (x @ weight + (x * bias).tanh().sum(1) * weight.sum()).sum()  # noqa: E731
    between = (0.5 * real + 0.5 * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between), between, create_graph=True)
    return critic(fake) - critic(real) + ((slope.norm(dim=1) - 1) ** 2).mean()


@ordinary("networks", spread(3), [0.0, 0.0, 0.0], smooth=False)
def physics_informed(inner: Tensor, outer: Tensor) -> Tensor:
    """u'' + u' = 0 with u(0) = 0 for a network that starts as 0: residuals are 0, and their absolute values bend."""
    u = lambda x: (outer * torch.tanh(inner * x)).sum()  # noqa: E731
    first = torch.func.grad(u)
    points = numbers(0.0, 0.5, 1.0)
    residual = torch.func.vmap(lambda x: torch.func.grad(first)(x) + first(x))(points)
    return residual.abs().mean() + u(points[0]).abs() + (u(points[2]) - 1) ** 2


@ordinary("networks", [0.0, 1.0], smooth=False)
def energy_by_hessian(x: Tensor) -> Tensor:
    energy = lambda y: (torch.relu(y) ** 3 + torch.relu(-y) ** 3).sum() + y.prod() ** 2  # noqa: E731
    return torch.func.hessian(energy)(x).diagonal().sum() + torch.func.grad(energy)(x).sum()


@ordinary("networks", [1.0, -1.0], smooth=False)
def conditional(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: 2 * x.sum() + x[0] ** 2, lambda x: -x.sum() + x[0] ** 2, (x,))


@ordinary("networks", [[0.0, 0.0], [1.0, 0.0]], smooth=False)
def checkpointed(weight: Tensor) -> Tensor:
    block = lambda h: F.relu(h @ weight)  # noqa: E731
    h = numbers([[1.0, 2.0]])
    for _ in range(2):
        h = checkpoint(block, h + 1, use_reentrant=False)
    return h.sum() + weight.abs().sum()


GRU = filled(nn.GRU(1, 2, batch_first=True))


@of_module("networks", GRU, smooth=True)
def packed_sequences(model: Any) -> Tensor:
    x = numbers([[[1.0], [2.0], [3.0]], [[1.0], [0.0], [0.0]]])
    packed = pack_padded_sequence(x, torch.tensor([3, 1]), batch_first=True)
    out, _ = pad_packed_sequence(model(packed)[0], batch_first=True)
    return F.relu(out).sum() + out.abs().amax(dim=1).sum()


@of_module("networks", nn.Sequential(nn.LayerNorm(3).double(), nn.ReLU(), zero(nn.Linear(3, 2))), smooth=False)
def residual_block_that_starts_as_identity(model: Any) -> Tensor:
    x = numbers([[1.0, 0.0, -1.0]])
    return (model(x).relu() + x[:, :2]).abs().sum()
