"""Passes over a tensor, or over the windows of max-pooling, where torch's operators take several: offered by `kernels`.

What they return is on the device, not synchronised; None for calls that they are not made for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from subgrad.apply.call import Arguments


class ForCorners(Protocol):
    def __call__(self, x: Tensor, places: Sequence[float], together: bool) -> Tensor | None:
        """How many entries equal each of some numbers, which the tensor's type holds, or any of them ``together``."""
        ...


class ForWindows(Protocol):
    def ties(self, x: Tensor, arguments: Arguments) -> Tensor | None:
        """How many windows hold their largest entry twice."""
        ...

    def ahead(
        self, x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Of a window's largest entries the one whose tangent is largest, of several the first or the last: its index;
        and whether any window is tied, and in its tangents too."""
        ...


for_corners: ForCorners | None = None
for_windows: ForWindows | None = None


def count_at(x: Tensor, places: Sequence[float], together: bool = False) -> Tensor | None:
    """How many entries lie at each place, or at any, if one pass can tell."""
    return for_corners(x, places, together) if x.is_cuda and for_corners is not None else None
