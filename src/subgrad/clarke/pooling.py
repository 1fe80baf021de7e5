"""Max-pooling: windows that hold their largest entry more than once take the one that gets ahead."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import shortcuts
from subgrad.apply.branches import Call
from subgrad.clarke.linear import carries_tangents_alone, tangent, valued, values, with_tangent
from subgrad.clarke.passes import Decide
from subgrad.clarke.selections import Selection, first, level_with, values_of
from subgrad.kinks.windows import Windows, adaptive, fractional, of_call, regular


class Pooled(Selection):
    """The rule of max-pooling; a branch is the numbers of the windows that tie, and the positions of what they take.

    All other windows take what torch's own operator does, whichever pass it is. No numbers: positions for all.
    """

    def __init__(self, dims: int, windows_of: Callable[..., Windows]):
        self.dims, self.windows_of = dims, windows_of

    def met(self, call: Call, out: Any) -> Tensor | bool:
        best, _ = out
        if best.numel() == 0:
            return False
        shortcut = self._shortcut()
        flag = None if shortcut is None else shortcut.ties(call.arguments["self"], best, call.arguments)
        if flag is not None:
            return flag
        return _tied(of_call(self.windows_of, call.arguments), call.arguments["self"], best, 0.0).any()

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        return True if tol > 0 else self.met(call, _native(call))

    def _shortcut(self) -> shortcuts.ForWindows | None:
        return shortcuts.for_windows() if self.windows_of is regular else None

    def decide(self, call: Call, at: Decide) -> tuple[Tensor | None, Tensor]:
        x, moved = call.arguments["self"], tangent(call.arguments["self"])
        assert moved is not None
        best, indices = _native(call)
        with values():
            shortcut = None if at.tol > 0 else self._shortcut()
            if shortcut is not None:
                found = shortcut.ahead(x, moved, best, indices, call.arguments, at.flip is not None)
                if found is not None:
                    indices, call.memo["met"], call.memo["undecided"] = found
                    return None, indices
            windows = of_call(self.windows_of, call.arguments)
            tied = _tied(windows, x, best, at.tol).flatten().nonzero().squeeze(1)
            plane, positions, valid = windows.of(tied)
            places = positions + plane.unsqueeze(1) * prod(windows.sizes)
            entries, ahead = (each.reshape(-1)[places] for each in (x, moved))
            candidates = _near(entries, best.reshape(-1)[tied].unsqueeze(1), at.tol) & valid
            chosen = first(candidates, ahead, largest=True, last=at.flip is not None)
            call.memo["met"] = len(tied) > 0
            call.memo["undecided"] = level_with(candidates, ahead, chosen).sum(-1) > 1
            return tied, positions.gather(-1, chosen).squeeze(-1)

    def along(self, call: Call, branch: tuple[Tensor | None, Tensor]) -> Any:
        x, (tied, positions) = call.arguments["self"], branch
        best, indices = _native(call)
        if tied is None:
            indices = positions
        else:
            with values():
                indices = indices.flatten().index_copy(0, tied, positions).view_as(indices)
        call.memo["indices"] = [indices]
        if not carries_tangents_alone():
            return valued(self._picked(x, indices), best), indices
        moved = tangent(x)
        assert moved is not None
        with values():
            ahead = self._picked(moved, indices)
        return with_tangent(best, ahead), indices

    def _picked(self, x: Tensor, indices: Tensor) -> Tensor:
        return x.flatten(-self.dims).gather(-1, indices.flatten(-self.dims)).view_as(indices)


def _native(call: Call) -> tuple[Tensor, Tensor]:
    """What torch's own operator returns; on the CPU it is several times faster with channels last, copies included."""
    x = call.arguments["self"]
    is_slow = call.op.op == "max_pool2d_with_indices" and x.device.type == "cpu" and x.is_contiguous()
    if "values" not in call.memo and is_slow and x.ndim == 4 and x.shape[1] >= 8:
        with values():
            found = call.native({**call.arguments, "self": x.contiguous(memory_format=torch.channels_last)})
            call.memo["values"] = tuple(each.contiguous() for each in found)
    return values_of(call)


def _tied(windows: Windows, x: Tensor, best: Tensor, tol: float) -> Tensor:
    """Which windows hold their largest entry more than once."""
    # Candidate after candidate, each a strided view: nothing as large as all windows is made.
    count = torch.zeros_like(best, dtype=torch.uint8 if windows.candidates < 256 else torch.int32)
    for entries, exists in windows.columns(x):
        near = _near(entries, best, tol)
        count += near if windows.is_whole else near & exists
    return count > 1


def _near(entries: Tensor, best: Tensor, tol: float) -> Tensor:
    return entries == best if tol == 0 else (entries - best).abs() <= tol


POOLS: dict[str, Any] = {
    "max_pool2d_with_indices": Pooled(2, regular),
    "max_pool3d_with_indices": Pooled(3, regular),
    "adaptive_max_pool2d": Pooled(2, adaptive),
    "adaptive_max_pool3d": Pooled(3, adaptive),
    "fractional_max_pool2d": Pooled(2, fractional),
    "fractional_max_pool3d": Pooled(3, fractional),
}
