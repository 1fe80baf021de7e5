"""An audit, walked through: weights are fake-quantised, and an upgrade takes the gradient of the largest ones.

Rounded weights are clamped to the range of the integers, as torchao and others do. The largest weight of each row is
rounded onto the bound itself, by construction: there torch 2.13 lets the gradient through, and torch 2.14 stops it.

    python examples/audit_walkthrough.py report.html

prints

    40 steps, 20 of them recorded, 10 compared
    clamp in layer 0, self == min: hit in 20 of them
    clamp in layer 0, self == max: hit in 20 of them
    clamp in layer 2, self == min: hit in 20 of them
    clamp in layer 2, self == max: hit in 20 of them
    from torch 2.13 to 2.14 the gradients of 0.weight and 2.weight change, because of
      levels = levels.clamp(-HIGH, HIGH)
"""

import sys

import torch
from torch import Tensor, nn

import subgrad

HIGH = 7  # of four bits, symmetric


class FakeQuantised(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        scale = self.weight.detach().abs().amax(1, keepdim=True) / HIGH
        levels = self.weight / scale
        levels = levels + (levels.round() - levels).detach()  # straight through the rounding
        levels = levels.clamp(-HIGH, HIGH)
        return nn.functional.linear(inputs, levels * scale, self.bias)


def train(model: nn.Module, steps: int = 40) -> float:
    random = torch.Generator().manual_seed(0)
    teacher = torch.randn(16, 4, generator=random)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        inputs = torch.randn(32, 16, generator=random)
        loss = nn.functional.mse_loss(model(inputs), inputs @ teacher)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(FakeQuantised(16, 32), nn.ReLU(), FakeQuantised(32, 4))
    with subgrad.audit(model, compare=("torch-2.13", "torch-2.14"), every=2, compare_every=4) as audit:
        train(model)
    if len(sys.argv) > 1:
        audit.to_html(sys.argv[1])

    print(f"{audit.steps} steps, {len(audit.recorded)} of them recorded, {len(audit.effects)} compared")
    for row in audit.rows:
        if row.total.hits:
            print(f"{row.operator} in layer {row.module}, {row.kink}: hit in {len(row.series)} of them")
    worst = audit.worst["torch-2.13", "torch-2.14"]
    changed = [change.parameter for change in worst.changes if change.differ]
    print(f"from torch 2.13 to 2.14 the gradients of {' and '.join(changed)} change, because of")
    print(f"  {worst.first.site.source}")


if __name__ == "__main__":
    main()
