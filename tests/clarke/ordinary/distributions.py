"""Densities at their kinks, samples, divergences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical, Laplace, MixtureSameFamily, Normal, kl_divergence

from clarke.ordinary.entries import numbers, ordinary


@ordinary("distributions", [0.0, 1.0, 2.0], [0.5], smooth=False)
def truncated_normal(x: Tensor, mean: Tensor) -> Tensor:
    normal = Normal(mean, torch.ones_like(mean))
    inside = normal.cdf(numbers([2.0])) - normal.cdf(numbers([0.0]))
    return (normal.log_prob(x.clamp(0, 2)) - inside.clamp(min=1e-6).log()).sum()


@ordinary("distributions", [0.0, 1.0], [1.0, 0.0], smooth=True)
def mixture(x: Tensor, logits: Tensor) -> Tensor:
    parts = Normal(numbers(-1, 1), torch.ones(2, dtype=torch.float64), validate_args=False)
    weights = Categorical(logits=F.relu(logits) - F.relu(-logits), validate_args=False)
    return MixtureSameFamily(weights, parts, validate_args=False).log_prob(x).sum()


@ordinary("distributions", [0.0, 1.0], smooth=False)
def hard_assignment(x: Tensor) -> Tensor:
    each = Normal(numbers(-1, 1), numbers(1, 1)).log_prob(x[:, None])
    return each.max(dim=1).values.sum()


@ordinary("distributions", [1.0, 2.0], [1.0, 0.0], [1.0, 2.0], smooth=False)
def laplace(x: Tensor, place: Tensor, scale: Tensor) -> Tensor:
    return -Laplace(place, scale, validate_args=False).log_prob(x).mean()


@ordinary("distributions", [0.0, 0.0], [0.0, 1.0], smooth=False)
def reparameterised_samples(mean: Tensor, raw: Tensor) -> Tensor:
    scale = F.relu(raw) + 0.5
    z = Normal(mean, scale).rsample((3,))
    return (z.abs() + F.relu(mean)).mean()


@ordinary("distributions", [0.0, 0.0, 1.0], [0.0, 1.0, -1.0], smooth=True)
def divergence_of_normals(mean: Tensor, log_scale: Tensor) -> Tensor:
    log_scale = log_scale.clamp(-5, 5)
    size = torch.hypot(mean, torch.zeros_like(mean))
    q = Normal(size, log_scale.exp())
    return kl_divergence(q, Normal(torch.zeros_like(mean), torch.ones_like(mean))).sum()


@ordinary("distributions", [[0.0, 0.0], [1.0, 0.0]], [0.0, 1.0], smooth=False)
def evidence_bound_with_free_bits(weight: Tensor, bias: Tensor) -> Tensor:
    data = numbers([[1.0, 0.0], [0.0, 1.0]])
    mean = F.relu(F.linear(data, weight, bias))
    posterior = Normal(mean, torch.ones_like(mean))
    z = posterior.rsample()
    likelihood = F.binary_cross_entropy_with_logits(z, data, reduction="sum")
    divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(1)
    return likelihood + torch.maximum(divergence, torch.full_like(divergence, 0.5)).sum()
