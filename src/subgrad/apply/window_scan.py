"""One pass over the windows of max-pooling, where torch's operators take one for each place; `kernels` offers it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from subgrad.apply.call import Arguments


class ForWindows(Protocol):
    """Both return None for calls that they are not made for."""

    def ties(self, x: Tensor, arguments: Arguments) -> Tensor | None:
        """How many windows hold their largest entry twice: on the device, not synchronised."""
        ...

    def ahead(
        self, x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Of a window's largest entries the one whose tangent is largest, of several the first or the last: its index;
        and whether any window is tied, and in its tangents too."""
        ...


_for_windows: list[ForWindows] = []


def offer_for_windows(shortcut: ForWindows) -> None:
    _for_windows.append(shortcut)


def for_windows() -> ForWindows | None:
    return _for_windows[0] if _for_windows else None
