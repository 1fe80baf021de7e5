"""Max-pooling: windows that hold their largest entry more than once take the one that gets ahead."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, through
from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents, carries_tangents_alone, tangent, values, with_tangent
from subgrad.clarke.engine.operator_certificate import MANY, part_of, picked
from subgrad.clarke.engine.passes import Decide, some
from subgrad.clarke.rules.extremes import Selection, first, level_with, values_of
from subgrad.kernels.window_scan import look_ahead, tied_windows
from subgrad.kinks.pooling_windows import Windows, adaptive, fractional, of_call, regular

_FEW = 4096  # entries: to call an operator takes longer than it does


class Pooled(Selection):
    """The rule of max-pooling; a branch is the numbers of the windows that tie, and the positions of what they take.

    All other windows take what torch's own operator does, whichever pass it is. No numbers: positions for all.
    """

    def __init__(self, dims: int, windows_of: Callable[..., Windows]):
        self.dims, self.windows_of = dims, windows_of

    def met(self, call: PassCall, out: Any) -> Tensor | bool:
        best, _ = out
        if best.numel() == 0:
            return False
        if self.windows_of is regular:
            ties = tied_windows(call.arguments["self"], call.arguments)
            if ties is not None:
                return ties
        return _tied(of_call(self.windows_of, call.arguments), call.arguments["self"], best, 0.0).any()

    def nearly_met(self, call: PassCall, out: Any, tol: float) -> Tensor | bool:
        windows = of_call(self.windows_of, call.arguments)
        return out[0].numel() > 0 and _tied(windows, call.arguments["self"], out[0], tol).any()

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return self.nearly_met(call, _native(call), tol) if tol > 0 else self.met(call, _native(call))

    def decide(self, call: PassCall, at: Decide) -> tuple[Tensor | None, Tensor]:
        x, moved = call.arguments["self"], tangent(call.arguments["self"])
        assert moved is not None
        best, indices = _native(call)
        with values():
            further = at.further(call)
            if self.windows_of is regular and at.tol == 0 and further is None:
                found = look_ahead(x, moved, best, indices, call.arguments, last=False)
                if found is not None:
                    indices, call.memo["met"], call.memo["undecided"] = found
                    return None, indices
            windows = of_call(self.windows_of, call.arguments)
            if _are_few(windows, best):
                return None, _ahead(call, windows, moved, at.tol, further)
            tied = _tied(windows, x, best, at.tol).flatten().nonzero().squeeze(1)
            plane, positions, valid = windows.of(tied)
            places = positions + plane.unsqueeze(1) * prod(windows.sizes)
            entries, ahead = (each.reshape(-1)[places] for each in (x, moved))
            candidates = _near(entries, best.reshape(-1)[tied].unsqueeze(1), at.tol) & valid
            chosen = first(candidates, ahead, largest=True)
            call.memo["met"] = len(tied) > 0
            level = level_with(candidates, ahead, chosen).sum(-1) > 1
            call.memo["undecided"] = level
            taken = positions.gather(-1, chosen).squeeze(-1)
            return tied, taken if further is None else torch.where(level, further.reshape(-1)[tied], taken)

    def decided_part(self, call: PassCall, out: Any, branch: tuple[Tensor | None, Tensor]) -> tuple[PassCall, Any]:
        """Planes whose windows tie: channels of images are pooled each by itself."""
        best, tied = out[0], branch[0]
        if tied is None or self.windows_of is fractional or best.numel() <= MANY:
            return call, out
        size = prod(best.shape[-self.dims :])
        with values():
            planes = torch.unique(tied // size)
            planes = planes[:: 1 + len(planes) * size // MANY]

        def pick(each: Tensor) -> Tensor:
            return each.reshape(-1, 1, *each.shape[-self.dims :])[planes]

        return part_of(call, ["self"], pick), (picked(best, pick),)

    def along(self, call: PassCall, branch: tuple[Tensor | None, Tensor]) -> Any:
        x, (tied, positions) = call.arguments["self"], branch
        best, indices = _native(call)
        if tied is None:
            indices = positions
        else:
            with values():
                indices = indices.flatten().index_copy(0, tied, positions).view_as(indices)
        call.memo["indices"] = [indices]
        if not carries_tangents_alone():
            found = _gathered(x, best, indices, self.dims)
            return through(_Taken, best, indices, self.dims, x) if found is None else found, indices
        moved = tangent(x)
        assert moved is not None
        with values():
            ahead = _picked(moved, indices, self.dims)
        return with_tangent(best, ahead), indices


def _picked(x: Tensor, indices: Tensor, dims: int) -> Tensor:
    return x.flatten(-dims).gather(-1, indices.flatten(-dims)).view_as(indices)


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _gathered(x: Tensor, best: Tensor, indices: Tensor, dims: int) -> Tensor | None:
    """The entries that few windows take by torch's own operators, whose backward costs less than one in Python.

    None unless they are the values to the bit, as 0.0 and -0.0 are not, or where to ask means to wait.
    """
    if not best.is_cpu or best.numel() > _FEW or carries_tangents():
        return None
    found, bits = _picked(x, indices, dims), _BITS[best.element_size()]
    with values():
        return found if torch.equal(found.view(bits), best.view(bits)) else None


class _Taken(Gate):
    """The values of windows, with the derivatives of the entries that they take."""

    @staticmethod
    def forward(ctx: Any, best: Tensor, indices: Tensor, dims: int, x: Tensor) -> Tensor:
        ctx.shape, ctx.dims = x.shape, dims
        ctx.save_for_backward(indices)
        ctx.save_for_forward(indices)
        return alias(best)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        (indices,), dims = ctx.saved_tensors, ctx.dims
        found = cotangent.new_zeros(ctx.shape)
        found.flatten(-dims).scatter_add_(-1, indices.flatten(-dims), cotangent.flatten(-dims))
        return None, None, None, found

    @staticmethod
    def jvp(ctx: Any, _best: Any, _indices: Any, _dims: Any, moved: Tensor) -> Tensor:
        return _picked(moved, ctx.saved_tensors[0], ctx.dims)


def _native(call: PassCall) -> tuple[Tensor, Tensor]:
    """What torch's own operator returns; on the CPU it is several times faster with channels last, copies included.

    That is, unless copies take longer than all the rest.
    """
    x = call.arguments["self"]
    is_slow = call.op.op == "max_pool2d_with_indices" and x.device.type == "cpu" and x.is_contiguous()
    if "values" not in call.memo and is_slow and x.ndim == 4 and x.shape[1] >= 8 and x.numel() > _FEW:
        with values():
            found = call.native({**call.arguments, "self": x.contiguous(memory_format=torch.channels_last)})
            call.memo["values"] = tuple(each.contiguous() for each in found)
    return values_of(call)


def _are_few(windows: Windows, best: Tensor) -> bool:
    """Whether all windows are looked at in less time than it takes to call what looks at some of them."""
    return windows.are_alike and best.numel() * windows.candidates <= _FEW


def _candidates(windows: Windows, x: Tensor, best: Tensor, tol: float) -> Tensor:
    """Which entries of few windows are their largest: behind the dimensions of the output, one of candidates."""
    near = _near(windows.entries(x), best.unsqueeze(-1), tol)
    return near if windows.is_whole else near & windows.valid_in_space


def _ahead(call: PassCall, windows: Windows, moved: Tensor, tol: float, further: Tensor | None) -> Tensor:
    """The positions that few windows take: torch's own where they do not tie."""
    best, indices = _native(call)
    candidates, ahead = _candidates(windows, call.arguments["self"], best, tol), windows.entries(moved)
    chosen = first(candidates, ahead, largest=True)
    tied = candidates.sum(-1) > 1
    call.memo["met"] = some(tied)
    level = level_with(candidates, ahead, chosen).sum(-1) > 1
    call.memo["undecided"] = level
    found = torch.where(tied, windows.in_space.expand_as(ahead).gather(-1, chosen).squeeze(-1), indices)
    return found if further is None else torch.where(level, further, found)


def _tied(windows: Windows, x: Tensor, best: Tensor, tol: float) -> Tensor:
    """Which windows hold their largest entry more than once."""
    if _are_few(windows, best):
        return _candidates(windows, x, best, tol).sum(-1) > 1
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
