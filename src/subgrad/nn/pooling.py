"""Pooling with the arguments of its counterparts in ``torch.nn``."""

# Annotations are types here and not strings: torch 2.11 cannot pickle what `torch.fx` traces of the latter.
import torch
from torch import Tensor

from subgrad.conventions import Convention
from subgrad.nn.carries import Carries


class MaxPool1d(
    Carries,
    torch.nn.MaxPool1d,
    function="max_pool1d",
    given="kernel_size stride padding dilation ceil_mode return_indices",
):
    """As ``torch.nn.MaxPool1d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, return_indices, ceil_mode, convention=convention)


class MaxPool2d(
    Carries,
    torch.nn.MaxPool2d,
    function="max_pool2d",
    given="kernel_size stride padding dilation ceil_mode return_indices",
):
    """As ``torch.nn.MaxPool2d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, return_indices, ceil_mode, convention=convention)


class MaxPool3d(
    Carries,
    torch.nn.MaxPool3d,
    function="max_pool3d",
    given="kernel_size stride padding dilation ceil_mode return_indices",
):
    """As ``torch.nn.MaxPool3d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, return_indices, ceil_mode, convention=convention)


class AdaptiveMaxPool1d(
    Carries, torch.nn.AdaptiveMaxPool1d, function="adaptive_max_pool1d", given="output_size return_indices"
):
    """As ``torch.nn.AdaptiveMaxPool1d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        output_size: int | tuple[int | None, ...] | None,
        return_indices: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(output_size, return_indices, convention=convention)


class AdaptiveMaxPool2d(
    Carries, torch.nn.AdaptiveMaxPool2d, function="adaptive_max_pool2d", given="output_size return_indices"
):
    """As ``torch.nn.AdaptiveMaxPool2d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        output_size: int | tuple[int | None, ...] | None,
        return_indices: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(output_size, return_indices, convention=convention)


class AdaptiveMaxPool3d(
    Carries, torch.nn.AdaptiveMaxPool3d, function="adaptive_max_pool3d", given="output_size return_indices"
):
    """As ``torch.nn.AdaptiveMaxPool3d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        output_size: int | tuple[int | None, ...] | None,
        return_indices: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(output_size, return_indices, convention=convention)


class FractionalMaxPool2d(
    Carries,
    torch.nn.FractionalMaxPool2d,
    function="fractional_max_pool2d",
    given="kernel_size output_size output_ratio return_indices _random_samples",
):
    """As ``torch.nn.FractionalMaxPool2d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        output_size: int | tuple[int, ...] | None = None,
        output_ratio: float | tuple[float, ...] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(kernel_size, output_size, output_ratio, return_indices, _random_samples, convention=convention)


class FractionalMaxPool3d(
    Carries,
    torch.nn.FractionalMaxPool3d,
    function="fractional_max_pool3d",
    given="kernel_size output_size output_ratio return_indices _random_samples",
):
    """As ``torch.nn.FractionalMaxPool3d``; tied entries share as ``convention`` says, by default equally."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        output_size: int | tuple[int, ...] | None = None,
        output_ratio: float | tuple[float, ...] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(kernel_size, output_size, output_ratio, return_indices, _random_samples, convention=convention)
