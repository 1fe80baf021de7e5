"""Two-bit quantisation-aware training, whose result depends on the version of torch, and does not under a convention.

    python examples/low_bit_qat.py            # about a minute on one core

Learned step sizes (LSQ, Esser et al. 2020) as they are usually written: round with a straight-through estimator, and
`torch.clamp` to the levels. Where the clamp comes after the rounding, every weight that is rounded to the first or the
last of four levels lies on a bound of it: up to torch 2.13 the gradient passed there, since 2.14 it does not. On the
handwritten digits of scikit-learn, under the gradients of both and under conventions, six seeds each. What it prints
is in `low_bit_qat.txt`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, stdev
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import subgrad

BITS = 2


def as_published(x: Tensor, scale: Tensor, first: int, last: int, factor: float) -> Tensor:
    """With torch's own operators; the gradient of the scale is multiplied with a factor."""
    scale = scale * factor + (scale - scale * factor).detach()
    level = torch.clamp(x / scale, first, last)
    return (level + (level.round() - level).detach()) * scale


def rounded_first(x: Tensor, scale: Tensor, first: int, last: int, factor: float) -> Tensor:
    """The same with the clamp behind the rounding, as torchao has it."""
    scale = scale * factor + (scale - scale * factor).detach()
    level = x / scale
    return torch.clamp(level + (level.round() - level).detach(), first, last) * scale


def spelled_out(x: Tensor, scale: Tensor, first: int, last: int, factor: float) -> Tensor:
    """As one operator that carries its convention, whatever is in force around it."""
    return subgrad.functional.fake_quantize(x, scale, 0, first, last, grad_factor=factor, convention="pass-through")


Quantise = Callable[[Tensor, Tensor, int, int, float], Tensor]


class QuantisedLinear(nn.Module):
    """Weights from -2 to 1 steps, and what it is given from 0 to 3, if that is no input of the network."""

    def __init__(self, inputs: int, outputs: int, quantise: Quantise, is_first: bool):
        super().__init__()
        self.inner, self.quantise, self.is_first = nn.Linear(inputs, outputs), quantise, is_first
        last = 2 ** (BITS - 1) - 1
        self.step = nn.Parameter(2 * self.inner.weight.detach().abs().mean().reshape(1) / last**0.5)
        self.step_of_input = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        weight, first, last = self.inner.weight, -(2 ** (BITS - 1)), 2 ** (BITS - 1) - 1
        weight = self.quantise(weight, self.step, first, last, (weight.numel() * last) ** -0.5)
        if not self.is_first:
            x = self.quantise(x, self.step_of_input, 0, 2**BITS - 1, (x.numel() * (2**BITS - 1)) ** -0.5)
        return F.linear(x, weight, self.inner.bias)


class Result(NamedTuple):
    accuracy: float
    loss: float
    weights: Tensor


def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]


def train(quantise: Quantise, convention: str, seed: int, epochs: int) -> Result:
    torch.manual_seed(seed)
    x, y = digits()
    x, test_x, y, test_y = x[:1347], x[1347:], y[:1347], y[1347:]
    widths = (64, 64, 64, 10)
    layers = [QuantisedLinear(a, b, quantise, i == 0) for i, (a, b) in enumerate(pairwise(widths))]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with subgrad.use(convention):
        for _ in range(epochs):
            for chosen in torch.randperm(len(x)).split(64):
                loss = F.cross_entropy(model(x[chosen]), y[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        right = (model(test_x).argmax(1) == test_y).double().mean()
        loss = F.cross_entropy(model(x), y)
    return Result(float(right), float(loss), torch.cat([each.detach().flatten() for each in model.parameters()]))


# Spellings, and what is in force around them; "torch" is the installed one.
ROWS: tuple[tuple[str, Quantise, tuple[str, ...]], ...] = (
    ("round, then clamp", rounded_first,
     ("torch-2.13", "torch-2.14", "torch", "min-norm", "pass-through", "straight-through")),
    ("clamp, then round", as_published, ("torch-2.13", "torch-2.14")),
    ("fake_quantize", spelled_out, ("torch-2.13", "torch-2.14")),
)  # fmt: skip


def line(name: str, convention: str, results: list[Result], reference: list[Result]) -> str:
    accuracies, losses = [each.accuracy for each in results], [each.loss for each in results]
    same = sum(torch.equal(one.weights, other.weights) for one, other in zip(results, reference, strict=True))
    return (
        f"{name:18} {convention:17} {mean(accuracies):6.2%} +- {stdev(accuracies):5.2%}"
        f"   {mean(losses):.4f} +- {stdev(losses):.4f}   {same:2} of {len(results)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':36} {'accuracy':16}   {'training loss':16}   weights as under torch-2.13")
    for name, quantise, conventions in ROWS:
        reference: list[Result] = []
        for convention in conventions:
            results = [train(quantise, convention, seed, options.epochs) for seed in range(options.seeds)]
            reference = reference or results
            print(line(name, convention, results, reference))


if __name__ == "__main__":
    main()
