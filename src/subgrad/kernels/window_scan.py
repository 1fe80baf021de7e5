"""Whether windows of `max_pool2d` hold ties, and which of the tied entries gets ahead: by device."""

from __future__ import annotations

from torch import Tensor

from subgrad.apply.call import Arguments
from subgrad.kernels import cpu_window_scan, cuda_window_scan


def tied_windows(x: Tensor, arguments: Arguments) -> Tensor | None:
    """How many windows hold their largest entry twice, on the device; None for calls that no scan is made for."""
    return (cpu_window_scan if x.is_cpu else cuda_window_scan).tied_windows(x, arguments)


def look_ahead(
    x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Of a window's largest entries the one whose tangent is largest, of several the first or the last.

    Returns its index, whether any window is tied, and whether one is in its tangents too; None for calls that no scan
    is made for.
    """
    scan = cpu_window_scan if x.is_cpu else cuda_window_scan
    return scan.look_ahead(x, tangent, values, indices, arguments, last)
