"""Selections inside a tensor: entries are ordered by value, and where these tie by tangent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import tangent, valued, values
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule


class Selection(Rule):
    """What the rules of all of them share."""

    def look(self, call: PassCall, tol: float) -> tuple[Any, Tensor | bool]:
        out = call.run()
        with values():
            return out, self.nearly_met(call, out, tol) if tol > 0 else self.met(call, out)

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return self.nearly_met(call, values_of(call), tol) if tol > 0 else self.met(call, values_of(call))

    def met(self, call: PassCall, out: Any) -> Tensor | bool:
        raise NotImplementedError

    def nearly_met(self, call: PassCall, out: Any, tol: float) -> Tensor | bool:
        """Whether candidates are within a tolerance of each other."""
        raise NotImplementedError

    def note(self, call: PassCall, out: Any) -> Tensor | None:
        """The indices, if there are any."""
        return next((each for each in as_list(out) if not each.is_floating_point()), None)


def values_of(call: PassCall) -> Any:
    if "values" not in call.memo:
        with values():
            call.memo["values"] = call.native(call.arguments)
    return call.memo["values"]


def as_list(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else list(out)


# The largest or smallest of some dimensions.


def _dims(x: Tensor, dim: Any) -> list[int]:
    dims = [dim] if isinstance(dim, int) else list(dim) if dim else list(range(x.ndim))
    return sorted(each % max(x.ndim, 1) for each in dims)


def _lines(x: Tensor, dims: Sequence[int]) -> Tensor:
    """The entries to select from, in a last dimension of their own."""
    if x.ndim == 0:
        return x.reshape(1)
    rest = [each for each in range(x.ndim) if each not in dims]
    return x.permute(*rest, *dims).flatten(len(rest))


class Extreme(Selection):
    """The rule of `max`, `amax`, `argmax` and the like; a branch holds for each end the index along its line."""

    def __init__(self, *ends: bool, indices: bool = False, values: bool = True):
        self.ends, self.gives_indices, self.gives_values = ends, indices, values  # an end: whether the largest

    def met(self, call: PassCall, out: Any) -> Tensor | bool:
        return self.nearly_met(call, out, 0.0)

    def nearly_met(self, call: PassCall, out: Any, tol: float) -> Tensor | bool:
        lines = self._of(call)
        if lines.numel() == 0:
            return False
        found = [_candidates(lines, end, tol).sum(-1) > 1 for end in self.ends]
        return torch.stack([each.any() for each in found]).any()

    def _of(self, call: PassCall) -> Tensor:
        x = call.arguments["self"]
        return _lines(x, _dims(x, call.arguments.get("dim")))

    def decide(self, call: PassCall, at: Decide) -> list[Tensor] | None:
        moved = tangent(call.arguments["self"])
        assert moved is not None
        with values():
            lines = self._of(call)
            if lines.numel() == 0:
                return None
            ahead = _lines(moved, _dims(moved, call.arguments.get("dim")))
            tied = [(_candidates(lines, end, at.tol), end) for end in self.ends]
            found = [first(candidates, ahead, end) for candidates, end in tied]
            if self.gives_indices:
                level = level_with(tied[0][0], ahead, found[0]).sum(-1) > 1
                call.memo["undecided"] = level
                further = at.further(call)
                if further is not None:
                    found[0] = torch.where(level.unsqueeze(-1), further.reshape(found[0].shape), found[0])
            return found

    def along(self, call: PassCall, branch: list[Tensor]) -> Any:
        native = as_list(values_of(call))
        outputs: list[Tensor] = []
        if self.gives_values:
            lines = self._of(call)
            for index, value in zip(branch, native, strict=False):
                outputs.append(valued(lines.gather(-1, index).reshape(value.shape), value))
        if self.gives_indices:
            outputs.append(branch[0].reshape(native[-1].shape))
        call.memo["indices"] = outputs[-1:] if self.gives_indices else []
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _candidates(lines: Tensor, largest: bool, tol: float) -> Tensor:
    best = lines.amax(-1, keepdim=True) if largest else lines.amin(-1, keepdim=True)
    return lines == best if tol == 0 else (lines - best).abs() <= tol


def first(candidates: Tensor, ahead: Tensor, largest: bool) -> Tensor:
    """The index of the candidate that is ahead of the others, or behind them; of several the first."""
    # Candidates whose tangent is -inf or nan count too.
    behind = (ahead if largest else -ahead).clamp(min=torch.finfo(ahead.dtype).min)
    return torch.where(candidates, behind, -torch.inf).argmax(-1, keepdim=True)


def level_with(candidates: Tensor, ahead: Tensor, index: Tensor) -> Tensor:
    """Which candidates tie in their tangents as well."""
    return candidates & (ahead == ahead.gather(-1, index))


EXTREMES: dict[str, Any] = {
    **{op: Extreme(True) for op in ("amax", "max")},
    **{op: Extreme(False) for op in ("amin", "min")},
    "aminmax": Extreme(False, True),
    "max.dim": Extreme(True, indices=True),
    "min.dim": Extreme(False, indices=True),
    "argmax": Extreme(True, indices=True, values=False),
    "argmin": Extreme(False, indices=True, values=False),
}
