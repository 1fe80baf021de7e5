"""A model trained in JAX, moved to torch: under `jax` the gradients are those of JAX at every step, else they are not.

Recorded by scripts/record_frameworks.py, which runs scripts/train_jax.py.
"""

from __future__ import annotations

import json
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad

RECORD = Path(__file__).parent / "recorded" / "frameworks" / "jax_training.json"
CLOSE = 1e-12
Weights = dict[str, Tensor]


@cache
def recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text())


def loss(weights: Weights, x: Tensor, target: Tensor) -> Tensor:
    hidden = F.leaky_relu(x @ weights["first"].clamp(-1, 1) + weights["shift"], 0.25)
    bounded = hidden.clamp(-2, 2)
    larger = torch.maximum(bounded, 1 - hidden.abs())
    best = larger.max(dim=1).values
    lengths = torch.linalg.vector_norm(larger - 1, 1, dim=1) + torch.linalg.vector_norm(larger, inf, dim=1)
    found = (larger @ weights["second"])[:, 0] + best + 0.125 * lengths
    return ((found - target) ** 2).mean()


def tensor(given: Any) -> Tensor:
    return torch.tensor(given, dtype=torch.float64)


def trained(convention: str | subgrad.Convention, compiled: bool = False) -> list[tuple[float, Weights]]:
    """Loss and gradients at every step, of torch's own training."""
    record = recorded()
    weights = {name: tensor(each) for name, each in record["weights"].items()}
    x, target = tensor(record["x"]), tensor(record["target"])
    objective = torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss
    steps = []
    for _ in record["steps"]:
        leaves = {name: each.requires_grad_() for name, each in weights.items()}
        with subgrad.use(convention):
            value = objective(leaves, x, target)
        found = dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))
        steps.append((float(value.detach()), found))
        grid = record["grid"]
        weights = {
            name: (grid * (each.detach() - record["rate"] * found[name])).round() / grid
            for name, each in leaves.items()
        }
    return steps


def gap(found: Weights, step: dict[str, Any]) -> float:
    return max(float((found[name] - tensor(each)).abs().max()) for name, each in step["gradients"].items())


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.compiled)])
def test_under_jax_every_gradient_of_ten_steps_is_that_of_jax(compiled: bool) -> None:
    torch._dynamo.reset()
    steps = trained("jax", compiled)
    assert len(steps) == 10
    for (value, found), step in zip(steps, recorded()["steps"], strict=True):
        assert value == pytest.approx(step["loss"], rel=CLOSE)
        assert gap(found, step) < CLOSE


@pytest.mark.parametrize("convention", ["torch", "torch-2.13", "torch-2.14", "min-norm", "tensorflow", "mlx", "paddle"])
def test_under_no_other_convention_they_are(convention: str) -> None:
    (_, found), *_ = trained(convention)
    assert gap(found, recorded()["steps"][0]) > 1e-3


@pytest.mark.parametrize("operator", ["clamp", "leaky_relu", "abs", "max", "linalg_vector_norm"])
def test_each_operator_takes_part(operator: str) -> None:
    """With torch's own element at one of them, the gradients are others: kinks of all are hit."""
    steps = trained(subgrad.Convention("jax", [(operator, "torch")]))
    assert max(gap(found, step) for (_, found), step in zip(steps, recorded()["steps"], strict=True)) > 1e-3


def test_kinks_are_hit_at_every_step() -> None:
    """On the way that JAX takes, torch's own gradient is another one each time."""
    grid, rate = recorded()["grid"], recorded()["rate"]
    weights = {name: tensor(each) for name, each in recorded()["weights"].items()}
    x, target = tensor(recorded()["x"]), tensor(recorded()["target"])
    for step in recorded()["steps"]:
        leaves = {name: each.requires_grad_() for name, each in weights.items()}
        found = torch.autograd.grad(loss(leaves, x, target), list(leaves.values()))
        assert gap(dict(zip(leaves, found, strict=True)), step) > 1e-3
        gradients = {name: tensor(each) for name, each in step["gradients"].items()}
        weights = {
            name: (grid * (each.detach() - rate * gradients[name])).round() / grid for name, each in leaves.items()
        }
