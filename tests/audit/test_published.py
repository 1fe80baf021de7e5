"""Three published breakages, rebuilt in small: the audit names the line and the effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import subgrad
from subgrad.audit import Effect

UPGRADE = ("torch-2.13", "torch-2.14")


def line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the line of a function that holds a text."""
    lines, start = inspect.getsourcelines(function)
    return start + next(place for place, line in enumerate(lines) if text in line)


def audited(model: nn.Module, loss: Callable[[], Tensor]) -> Any:
    """One step of the usual loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with subgrad.audit(model, compare=UPGRADE) as audit:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return audit


class FakeQuantised(nn.Linear):
    """A weight rounded to 4 bits; gradients pass straight through the rounding, and the clamp must let them."""

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.detach().abs().amax() / 7
        scaled = self.weight / scale
        rounded = scaled + (scaled.round() - scaled).detach()
        return x @ (rounded.clamp(-8, 7) * scale).t()


def test_fake_quantisation_at_integer_bounds_loses_its_gradient() -> None:
    """pytorch/ao#4806: the largest weights land on the bound exactly, by construction of the scale."""
    model = FakeQuantised(3, 4, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[7.0, 1.0, -3.0], [0.5, 7.0, 2.0], [-7.0, 6.9, 3.0], [1.0, 2.0, 3.0]]))
    x = torch.tensor([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])
    audit = audited(model, lambda: (model(x) * torch.tensor([1.0, -2.0, 3.0, 5.0])).sum())
    at = line_of(FakeQuantised.forward, "rounded.clamp")
    (hit,) = [row for row in audit.rows if row.operator == "clamp" and row.total.hits]
    assert (hit.site.line, hit.module, hit.kink, hit.total.hits) == (at, "FakeQuantised", "self == max", 3)  # 6.9 too
    effect = audit.effects[0]
    assert [(each.parameter, each.differ) for each in effect.changes] == [("weight", 3)]
    assert effect.verdict.startswith(
        "Upgrading from torch 2.13 to 2.14 changes 1 of 1 gradient, by 20.8% of its norm, "
        f"all because of test_published.py:{at} (`clamp`). To keep them: with subgrad.use(\"torch-2.13\"): around"
    )  # fmt: skip


class Rotation(nn.Module):
    """The angle and the axis' length of a rotation matrix: guarded, so that rounding does not leave the domain."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(3))

    def forward(self) -> Tensor:
        cosine = (self.matrix.diagonal().sum() - 1) / 2
        angle = torch.acos(torch.clamp(cosine, -1.0, 1.0))
        length = torch.sqrt(torch.clamp(1 - self.matrix[2, 2], min=0.0))
        return 2 * angle + 3 * length


def test_guards_before_acos_and_sqrt_decide_between_infinite_and_zero() -> None:
    """kornia#4229: at the identity both guards are met, and behind them slopes are infinite."""
    model = Rotation()
    audit = audited(model, model)
    acos, sqrt = (line_of(Rotation.forward, text) for text in ("torch.acos", "torch.sqrt"))
    found = {(row.site.line, row.operator) for row in audit.rows if row.total.hits}
    assert found >= {(acos, "clamp"), (sqrt, "clamp"), (sqrt, "sqrt")}
    effect = audit.effects[0]
    assert [(cause.site.line, cause.operator) for cause in effect.causes] == [(acos, "clamp"), (sqrt, "clamp")]
    assert effect.changes[0].mended == 3  # the diagonal
    assert "3 entries change back to finite" in effect.verdict


class Ramp(nn.Module):
    """Distances to the border of a mask: what is below 0 is cut."""

    def __init__(self, cut: Callable[[Tensor], Tensor]):
        super().__init__()
        self.image = nn.Parameter((torch.arange(24 * 24) * 7 % 5 - 2.0).view(24, 24))
        self.cut = cut

    def forward(self) -> Tensor:
        return self.cut(self.image) * 3 - self.image


def by_mask(y: Tensor) -> Tensor:
    y = y.clone()
    y[y < 0] = 0
    return y


def by_clamp(y: Tensor) -> Tensor:
    return torch.clamp_min(y, 0)


def test_clamp_min_for_a_mask_flips_signs() -> None:
    """kornia#4594: ``clamp_min(y, 0)`` was put for ``y[y < 0] = 0``, which passes the gradient at 0 in all versions."""
    cotangent = (torch.arange(24 * 24) % 3 + 1.0).view(24, 24)
    model = Ramp(by_clamp)
    zeros = int((model.image == 0).sum())
    audit = audited(model, lambda: (model() * cotangent).sum())
    effect: Effect = audit.effects[0]
    assert [(cause.site.function, cause.operator) for cause in effect.causes] == [("by_clamp", "clamp_min")]
    assert (effect.differing, effect.flips) == (zeros, zeros)
    assert f", {zeros} entries change sign" in effect.verdict
    unchanged = audited(masked := Ramp(by_mask), lambda: (masked() * cotangent).sum())
    assert "give the same gradients" in unchanged.verdicts[0]
    (row,) = [row for row in unchanged.rows if row.total.hits]
    assert (row.kind, row.operator, row.total.hits, row.site.source) == ("comparison", "lt", zeros, "y[y < 0] = 0")
