"""What one direction gives of a program."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.dead_entries import is_finite
from subgrad.clarke.engine.duals import parts


@dataclass(frozen=True)
class Found:
    """What one direction gave.

    Attributes:
        gradient: for each leaf.
        value: of the program, as it is without us.
        aux: what the program returned besides.
        kinks: how many operators met a kink.
        direction: that decided the branches; None where there was nothing to decide.
        slope: the derivative of the program in that direction, from the tangent pass.
        product: the gradient times the direction, which is the same up to rounding.
        extrapolated: no rule led to it, but torch's own gradients nearby did.
    """

    gradient: tuple[Tensor | None, ...]
    value: Tensor
    aux: Any = None
    kinks: int = 0
    direction: tuple[Tensor, ...] | None = None
    slope: float | None = None
    product: float | None = None
    extrapolated: bool = False

    @property
    def is_finite(self) -> bool:
        """Whether the gradient is: what is not, times a direction, is inf or nan, be it times 0."""
        return (self.product is not None and isfinite(self.product)) or is_finite(self.gradient)


def outcome(out: Tensor) -> tuple[Tensor, float]:
    """The value that a run on tangents has reached, and the slope."""
    value, moved = parts(out)
    return value.detach().clone(), 0.0 if moved is None else moved.item()


def agree(one: Found, other: Found) -> bool:
    for mine, theirs in zip(one.gradient, other.gradient, strict=True):
        if mine is None or theirs is None:
            if mine is not theirs and bool((mine if theirs is None else theirs).any()):  # type: ignore[union-attr]
                return False
            continue
        rounding = torch.finfo(mine.dtype).eps ** 0.5
        if bool(((mine - theirs).abs() > rounding * (1 + mine.abs().amax() if mine.numel() else 1)).any()):
            return False
    return True
