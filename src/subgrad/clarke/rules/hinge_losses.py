"""Losses that are sums of corners: each takes the slope of the side that its argument moves to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import tangent, valued, values
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule


@dataclass(frozen=True)
class Hinged(Rule):
    """The rule of a loss that is a sum of corners; a branch is the slope at each of them.

    Attributes:
        distances: of every corner's argument to the corner, linear in the arguments.
        total: the loss from what comes out of the corners.
        left: the slope on the left, beside 1 on the right.
        when: the arguments for which it has corners.
    """

    distances: Callable[[Any], Tensor]
    total: Callable[[Any, Tensor], Tensor]
    left: float
    when: Callable[[Any], bool] = lambda arguments: True
    wholly: bool = False  # it has no forward mode of its own

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return self.when(call.arguments) and (self.distances(call.arguments).abs() <= tol).any()

    def decide(self, call: PassCall, at: Decide) -> Tensor | None:
        if not self.when(call.arguments) and not self.wholly:
            return None
        distances = self.distances(call.arguments)
        moved = tangent(distances)
        with values():
            ahead = torch.zeros_like(distances) if moved is None else moved
            side = torch.where(distances.abs() <= at.tol, ahead, distances) > 0
            return torch.where(side, 1.0, self.left).to(distances.dtype)

    def along(self, call: PassCall, branch: Tensor) -> Any:
        with values():
            native = call.native(call.arguments)
        outputs = (native,) if isinstance(native, Tensor) else native
        found = valued(self.total(call.arguments, branch * self.distances(call.arguments)), outputs[0])
        return found if isinstance(native, Tensor) else (found, *outputs[1:])


def _reduced(arguments: Any, losses: Tensor) -> Tensor:
    return losses if arguments["reduction"] == 0 else losses.mean() if arguments["reduction"] == 1 else losses.sum()


def _rows(arguments: Any) -> tuple[Tensor, Tensor]:
    x = arguments["self"] if arguments["self"].ndim else arguments["self"].reshape(1)
    return x.reshape(-1, x.shape[-1]), arguments["target"]


def _to_the_margin(arguments: Any) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(-1, 1)
    return arguments["margin"] - rows.gather(1, labels) + rows


def _margin_total(arguments: Any, hinges: Tensor) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(-1, 1)
    others = torch.arange(rows.shape[1], device=rows.device) != labels
    if arguments["weight"] is not None:
        hinges = hinges * arguments["weight"][labels]
    losses = torch.where(others, hinges ** arguments["p"], 0).sum(1) / rows.shape[1]
    return _reduced(arguments, losses.reshape(target.shape))


def _label_gaps(arguments: Any) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(rows.shape).clamp(min=0)
    return 1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1)


def _labels_total(arguments: Any, hinges: Tensor) -> Tensor:
    rows, target = _rows(arguments)
    labels = target.reshape(rows.shape)
    listed = (labels < 0).cumsum(1) == 0  # labels end at the first that is negative
    is_label = torch.zeros_like(rows).scatter_add(1, labels.clamp(min=0), listed.to(rows.dtype)) > 0
    counts = listed.unsqueeze(2) & ~is_label.unsqueeze(1)
    losses = torch.where(counts, hinges, 0).sum((1, 2)) / rows.shape[1]
    return _reduced(arguments, losses.reshape(target.shape[:-1] if target.ndim > 1 else ()))


LOSSES: dict[str, Any] = {
    "smooth_l1_loss": Hinged(lambda a: a["self"] - a["target"], _reduced, -1.0, lambda a: a["beta"] == 0),
    "multi_margin_loss": Hinged(_to_the_margin, _margin_total, 0.0, lambda a: a["p"] == 1, wholly=True),
    "multilabel_margin_loss_forward": Hinged(_label_gaps, _labels_total, 0.0, wholly=True),
}
