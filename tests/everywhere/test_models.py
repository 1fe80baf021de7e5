"""Models that hold conventions are copied, pickled, saved and compiled with them."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import subgrad

X = torch.tensor([[-1.0, 0.0, 3.0, 6.0, 7.0]])
COTANGENT = torch.tensor([[1.0, -2.0, -0.5, 5.0, 6.0]])


@subgrad.use("mean")
def bounded(x: Tensor) -> Tensor:
    return torch.clamp(x, 0.0, 6.0)


class Decorated(nn.Module):
    """Its forward has a convention, and so has a function that it calls."""

    @subgrad.use("right")
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) + 10 * bounded(x)


def model() -> nn.Module:
    own = subgrad.Convention("min-norm", hardtanh=0.25)
    return nn.Sequential(nn.Identity(), Decorated(), subgrad.nn.Hardtanh(0, 6, convention=own), nn.LeakyReLU(0.5))


def saved_and_loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def gradient(module: nn.Module) -> list[float]:
    leaf = X.clone().requires_grad_()
    with subgrad.use("left"):
        return torch.autograd.grad(module(leaf), leaf, COTANGENT)[0].tolist()


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), saved_and_loaded],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_copies_keep_their_conventions(copied: Callable[[nn.Module], nn.Module]) -> None:
    assert gradient(copied(model())) == gradient(model())


@pytest.mark.compiled
def test_copies_compile_whole() -> None:
    compiled = torch.compile(copy.deepcopy(model()), fullgraph=True, backend="aot_eager")
    assert gradient(compiled) == gradient(model())


def test_the_network_tells_conventions_apart() -> None:
    plain = nn.Sequential(nn.ReLU(), nn.Hardtanh(0, 6), nn.LeakyReLU(0.5))
    assert gradient(plain) != gradient(model())
