"""The share of minibatches whose gradients differ between relu'(0) = 0 and relu'(0) = 1, by precision and depth.

    python scripts/bertoin.py [--epochs 4]

After Bertoin, Bolte, Gerchinovitz and Pauwels, "Numerical influence of ReLU'(0) on backpropagation" (2021), on the
digits of scikit-learn: fully connected networks of 1 to 6 hidden layers, trained in 16, 32 and 64 bits. Both gradients
are true ones, of the same forward and for the cotangent that comes in, which code of the original dropped. Writes
docs/bertoin.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import subgrad

PAGE = Path(__file__).resolve().parents[1] / "docs" / "bertoin.md"
DEPTHS = range(1, 7)
WIDTH, BATCH = 256, 128
ZERO, ONE = subgrad.Convention("torch", relu=0.0), subgrad.Convention("torch", relu=1.0)

TEXT = """# How often does relu'(0) matter?

Written by `{command}` on torch {torch}, CPU. For each number of bits and of hidden layers: the share of
minibatches whose gradients are not the same under relu'(0) = 0 and relu'(0) = 1, and in brackets the share of entries
that are 0.

{table}

Fully connected networks, {width} units a layer, on the 1,797 digits of scikit-learn, in minibatches of {batch}, over
{epochs} epochs of training ({batches} minibatches) with SGD.

The trend is that of Bertoin et al. 2021, *Numerical influence of ReLU'(0) on backpropagation*: most minibatches in 16
bits, few and only of deeper networks in 32, none in 64. A product that is rounded before the bias is added hits 0 where
it equals the negated bias, which is what 16 bits make likely; the last line has `nn.Linear`, which fuses the two.

What the choice does to accuracy is another question. The ten points of that paper came from code whose backward dropped
the incoming gradient, and Boustany 2024 finds no effect of choosing among true elements. Here both are elements of the
set at 0, times the cotangent that comes in.
"""


class Layer(nn.Linear):
    """A product rounded to the type of the network, plus a bias, as on devices that do not fuse the two."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t() + self.bias


ROWS = {
    "16": (Layer, torch.float16),
    "32": (Layer, torch.float32),
    "64": (Layer, torch.float64),
    "16, fused": (nn.Linear, torch.float16),
}


def network(depth: int, layer: type[nn.Linear]) -> nn.Module:
    layers: list[nn.Module] = []
    for index in range(depth):
        layers += [layer(64 if index == 0 else WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, layer(WIDTH, 10))


def measure(depth: int, layer: type[nn.Linear], dtype: torch.dtype, epochs: int) -> tuple[float, float, int]:
    """The share of minibatches that differ, the share of hits, and how many minibatches there were."""
    torch.manual_seed(depth)
    digits = load_digits()
    inputs, targets = torch.tensor(digits.data / 16, dtype=dtype), torch.tensor(digits.target)
    model = network(depth, layer).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with subgrad.audit(model, compare=(ZERO, ONE), every=1, compare_every=1) as audit:
        for _ in range(epochs):
            for batch in torch.randperm(len(inputs)).split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(model(inputs[batch]).float(), targets[batch]).backward()
                optimizer.step()
    entries = sum(row.total.entries for row in audit.rows)
    differing = sum(effect.differing > 0 for effect in audit.effects)
    return differing / len(audit.effects), audit.hits / entries, len(audit.effects)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    lines, count = ["| bits | " + " | ".join(f"{depth} layers" for depth in DEPTHS) + " |", "|---" * 7 + "|"], 0
    for bits, (layer, dtype) in ROWS.items():
        cells = []
        for depth in DEPTHS:
            share, hits, count = measure(depth, layer, dtype, options.epochs)
            cells.append(f"{share:.0%} ({hits:.1e})" if hits else f"{share:.0%} (0)")
            print(f"{bits}, {depth} layers: {cells[-1]}", flush=True)
        lines.append(f"| {bits} | " + " | ".join(cells) + " |")
    command = " ".join(["python", *sys.argv])
    text = TEXT.format(
        command=command, torch=torch.__version__, table="\n".join(lines), width=WIDTH, batch=BATCH,
        epochs=options.epochs, batches=count,
    )  # fmt: skip
    options.page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
