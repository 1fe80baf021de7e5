"""Activations with the arguments and the state of their counterparts in ``torch.nn``."""

# Annotations are types here and not strings: torch 2.11 cannot pickle what `torch.fx` traces of the latter.
from typing import Any

import torch

from subgrad.conventions import Convention
from subgrad.nn.carries import Carries


class ReLU(Carries, torch.nn.ReLU, function="relu", given="inplace"):
    """As ``torch.nn.ReLU``; at 0 the slope that ``convention`` picks, by default 0."""

    def __init__(self, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(inplace, convention=convention)


class ReLU6(Carries, torch.nn.ReLU6, function="relu6", given="inplace"):
    """As ``torch.nn.ReLU6``; at 0 and 6 the slope that ``convention`` picks, by default 0."""

    def __init__(self, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(inplace, convention=convention)


class LeakyReLU(Carries, torch.nn.LeakyReLU, function="leaky_relu", given="negative_slope inplace"):
    """As ``torch.nn.LeakyReLU``; at 0 the slope that ``convention`` picks, by default the one nearer to 0."""

    def __init__(
        self, negative_slope: float = 1e-2, inplace: bool = False, *, convention: str | Convention = "min-norm"
    ) -> None:
        super().__init__(negative_slope, inplace, convention=convention)


class PReLU(Carries, torch.nn.PReLU, function="prelu", given="weight"):
    """As ``torch.nn.PReLU``; at 0 the slope that ``convention`` picks, by default the one nearer to 0."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Any = None,
        dtype: Any = None,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(num_parameters, init, device, dtype, convention=convention)


class RReLU(Carries, torch.nn.RReLU, function="rrelu", given="lower upper training inplace"):
    """As ``torch.nn.RReLU``; at 0 the slope that ``convention`` picks, by default the one nearer to 0."""

    def __init__(
        self,
        lower: float = 1.0 / 8,
        upper: float = 1.0 / 3,
        inplace: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(lower, upper, inplace, convention=convention)


class ELU(Carries, torch.nn.ELU, function="elu", given="alpha inplace"):
    """As ``torch.nn.ELU``; at 0 the slope that ``convention`` picks, by default the smaller one."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(alpha, inplace, convention=convention)


class CELU(Carries, torch.nn.CELU, function="celu", given="alpha inplace"):
    """As ``torch.nn.CELU``, which has no kink: both slopes at 0 are 1."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(alpha, inplace, convention=convention)


class SELU(Carries, torch.nn.SELU, function="selu", given="inplace"):
    """As ``torch.nn.SELU``; at 0 the slope that ``convention`` picks, by default the smaller one, 1.0507."""

    def __init__(self, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(inplace, convention=convention)


class Hardsigmoid(Carries, torch.nn.Hardsigmoid, function="hardsigmoid", given="inplace"):
    """As ``torch.nn.Hardsigmoid``; at -3 and 3 the slope that ``convention`` picks, by default 0."""

    def __init__(self, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(inplace, convention=convention)


class Hardswish(Carries, torch.nn.Hardswish, function="hardswish", given="inplace"):
    """As ``torch.nn.Hardswish``; at -3 and 3 the slope that ``convention`` picks, by default 0 and 1."""

    def __init__(self, inplace: bool = False, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(inplace, convention=convention)


class Softshrink(Carries, torch.nn.Softshrink, function="softshrink", given="lambd"):
    """As ``torch.nn.Softshrink``; at ``-lambd`` and ``lambd`` the slope that ``convention`` picks, by default 0."""

    def __init__(self, lambd: float = 0.5, *, convention: str | Convention = "min-norm") -> None:
        super().__init__(lambd, convention=convention)


class Threshold(Carries, torch.nn.Threshold, function="threshold", given="threshold value inplace"):
    """As ``torch.nn.Threshold``; its kink, if ``value`` is ``threshold``, has the slope that ``convention`` picks."""

    def __init__(
        self, threshold: float, value: float, inplace: bool = False, *, convention: str | Convention = "min-norm"
    ) -> None:
        super().__init__(threshold, value, inplace, convention=convention)
