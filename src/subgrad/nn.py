"""Modules that carry their convention, with the arguments and the state of their counterparts in ``torch.nn``.

>>> import torch, subgrad
>>> subgrad.nn.Hardtanh(0, 6, convention="pass-through")
Hardtanh(min_val=0, max_val=6, convention=pass-through)
"""

# Annotations are types here and not strings: torch 2.11 cannot pickle what `torch.fx` traces of the latter.
import torch
from torch import Tensor

from subgrad import functional
from subgrad.conventions import Convention
from subgrad.conventions import convention as as_convention


class Hardtanh(torch.nn.Hardtanh):
    """As ``torch.nn.Hardtanh``; at ``min_val`` and ``max_val`` the slope that ``convention`` picks, 0 by default."""

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(min_val, max_val, inplace)
        self.convention = as_convention(convention)

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace, convention=self.convention)

    def extra_repr(self) -> str:
        return _with_convention(super().extra_repr(), self.convention)


class ReLU6(torch.nn.ReLU6):
    """As ``torch.nn.ReLU6``; at 0 and 6 the slope that ``convention`` picks, 0 by default."""

    def __init__(self, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(inplace)
        self.convention = as_convention(convention)

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu6(input, self.inplace, convention=self.convention)

    def extra_repr(self) -> str:
        return _with_convention(super().extra_repr(), self.convention)


class ReLU(torch.nn.ReLU):
    """As ``torch.nn.ReLU``; at 0 the slope that ``convention`` picks, 0 by default."""

    def __init__(self, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(inplace)
        self.convention = as_convention(convention)

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input, self.inplace, convention=self.convention)

    def extra_repr(self) -> str:
        return _with_convention(super().extra_repr(), self.convention)


class LeakyReLU(torch.nn.LeakyReLU):
    """As ``torch.nn.LeakyReLU``; at 0 the slope that ``convention`` picks, by default the one nearer to 0."""

    def __init__(
        self, negative_slope: float = 1e-2, inplace: bool = False, *, convention: str | Convention = "min-norm"
    ) -> None:
        super().__init__(negative_slope, inplace)
        self.convention = as_convention(convention)

    def forward(self, input: Tensor) -> Tensor:
        return functional.leaky_relu(input, self.negative_slope, self.inplace, convention=self.convention)

    def extra_repr(self) -> str:
        return _with_convention(super().extra_repr(), self.convention)


def _with_convention(text: str, convention: Convention) -> str:
    return ", ".join(filter(None, (text, f"convention={convention}")))


def __dir__() -> list[str]:
    return sorted(
        name for name, each in globals().items() if getattr(each, "__module__", "") == __name__ and name[0] != "_"
    )
