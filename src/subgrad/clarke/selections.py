"""Selections inside a tensor: entries are ordered by value, and where these tie by tangent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.branches import Call
from subgrad.clarke.linear import tangent, valued, values
from subgrad.clarke.passes import Decide
from subgrad.kinks.windows import adaptive, fractional, regular


class _Selection:
    is_site = True

    def look(self, call: Call, tol: float) -> tuple[Any, Tensor | bool]:
        out = call.run()
        if tol > 0:
            return out, True
        with values():
            return out, self.met(call, out)

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        return True if tol > 0 else self.met(call, _values_of(call))

    def met(self, call: Call, out: Any) -> Tensor | bool:
        raise NotImplementedError

    def around(self, call: Call, current: Any) -> Any:
        raise NotImplementedError


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


class Extreme(_Selection):
    """The rule of `max`, `amax`, `argmax` and the like; a branch holds for each end the index along its line."""

    def __init__(self, *ends: bool, indices: bool = False, values: bool = True):
        self.ends, self.gives_indices, self.gives_values = ends, indices, values  # an end: whether the largest

    def met(self, call: Call, out: Any) -> Tensor | bool:
        lines = self._of(call)
        if lines.numel() == 0:
            return False
        found = [_candidates(lines, end, 0.0).sum(-1) > 1 for end in self.ends]
        return torch.stack([each.any() for each in found]).any()

    def _of(self, call: Call) -> Tensor:
        x = call.arguments["self"]
        return _lines(x, _dims(x, call.arguments.get("dim")))

    def decide(self, call: Call, at: Decide) -> list[Tensor] | None:
        moved = tangent(call.arguments["self"])
        assert moved is not None
        with values():
            lines = self._of(call)
            if lines.numel() == 0:
                return None
            ahead = _lines(moved, _dims(moved, call.arguments.get("dim")))
            tied = [(_candidates(lines, end, at.tol), end) for end in self.ends]
            found = [_first(candidates, ahead, end, at.flip is not None) for candidates, end in tied]
            if self.gives_indices:
                level = candidates_level(tied[0][0], ahead, found[0])
                call.memo["undecided"] = level.sum(-1) > 1
            return found

    def along(self, call: Call, branch: list[Tensor]) -> Any:
        native = _as_list(_values_of(call))
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


def _first(candidates: Tensor, ahead: Tensor, largest: bool, last: bool) -> Tensor:
    """The index of the candidate that is ahead of the others, or behind them; of several the first, or the last."""
    behind = torch.where(candidates, ahead if largest else -ahead, -torch.inf)
    # Candidates whose tangent is -inf or nan count too.
    key = torch.where(behind.isneginf().all(-1, keepdim=True), candidates.to(ahead.dtype), behind)
    if not last:
        return key.argmax(-1, keepdim=True)
    return key.shape[-1] - 1 - key.flip(-1).argmax(-1, keepdim=True)


def candidates_level(candidates: Tensor, ahead: Tensor, index: Tensor) -> Tensor:
    """Which candidates tie in their tangents as well."""
    return candidates & (ahead == ahead.gather(-1, index))


def _values_of(call: Call) -> Any:
    if "values" not in call.memo:
        with values():
            call.memo["values"] = call.native(call.arguments)
    return call.memo["values"]


def _as_list(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else list(out)


# Pooling.


@dataclass(frozen=True)
class _Blocks:
    """A plane as windows side by side: each spatial dimension becomes two, that of windows and that inside."""

    kernel: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        for place, size in enumerate(reversed(self.kernel)):
            x = x.unflatten(-1 - 2 * place, (-1, size))
        return x

    def spread(self, best: Tensor) -> Tensor:
        for place in range(len(self.kernel)):
            best = best.unsqueeze(best.ndim - 2 * place)
        return best


class Pooled(_Selection):
    """The rule of max-pooling; a branch is the indices that it returns besides its values."""

    def __init__(self, dims: int, windows_of: Any, *names: str):
        self.dims, self.windows_of, self.names = dims, windows_of, names

    def _blocks(self, call: Call, best: Tensor) -> _Blocks | None:
        """Windows that lie side by side and cover all of a plane, as they do most often."""
        given, x = call.arguments, call.arguments["self"]
        if self.windows_of is not regular or not x.is_contiguous():
            return None
        kernel = list(given["kernel_size"]) * (self.dims if len(given["kernel_size"]) == 1 else 1)
        stride = list(given["stride"] or kernel) * (self.dims if len(given["stride"]) == 1 else 1)
        plain = kernel == stride and not any(given["padding"]) and set(given["dilation"]) == {1}
        covers = all(
            b * k == size for b, k, size in zip(best.shape[-self.dims :], kernel, x.shape[-self.dims :], strict=True)
        )
        return _Blocks(tuple(kernel)) if plain and covers else None

    def _windows(self, call: Call) -> Any:
        return self.windows_of(call.arguments["self"], *(call.arguments[name] for name in self.names))

    def met(self, call: Call, out: Any) -> Tensor | bool:
        best, _ = out
        if best.numel() == 0:
            return False
        blocks = self._blocks(call, best)
        if blocks is not None:
            return torch.count_nonzero(blocks(call.arguments["self"]) == blocks.spread(best)) > best.numel()
        count = torch.zeros_like(best, dtype=torch.uint8)
        for entries, valid in _columns(self._windows(call), call.arguments["self"]):
            count += (entries == best) if valid is None else (entries == best) & valid
        return (count > 1).any()

    def decide(self, call: Call, at: Decide) -> tuple[Tensor, bool]:
        x, moved = call.arguments["self"], tangent(call.arguments["self"])
        assert moved is not None
        best, _ = _values_of(call)
        with values():
            blocks = self._blocks(call, best)
            if blocks is not None and at.tol == 0:
                behind = blocks(x) != blocks.spread(best)
                ahead = blocks(moved) - (4 * moved.abs().amax() + 1).clamp(max=torch.finfo(x.dtype).max / 4) * behind
                return call.native({**call.arguments, "self": ahead.view(x.shape)})[1], not at.is_first
            windows = self._windows(call)
            # Sums and products, since `torch.where` takes several times longer on the CPU.
            far = (4 * moved.abs().amax() + 1).clamp(max=torch.finfo(x.dtype).max / 4)
            ahead = (-2 * far).expand_as(best)
            chosen = torch.zeros_like(best, dtype=torch.uint8 if windows.positions.shape[-1] < 256 else torch.long)
            pairs = zip(_columns(windows, x), _columns(windows, moved), strict=True)
            for column, ((entries, valid), (tangents, _)) in enumerate(pairs):
                behind = entries != best if at.tol == 0 else (entries - best).abs() > at.tol
                if valid is not None:
                    behind |= ~valid
                place = tangents - far * behind
                better = place > ahead
                ahead = torch.maximum(ahead, place)
                chosen += (column - chosen) * better
            lines = chosen.flatten(-self.dims).unsqueeze(-1).long()
            positions = windows.positions.expand(*lines.shape[:-1], windows.positions.shape[-1])
            return positions.gather(-1, lines).reshape(best.shape), at.tol == 0 and not at.is_first

    def along(self, call: Call, branch: tuple[Tensor, bool]) -> Any:
        x, (chosen, is_exact) = call.arguments["self"], branch
        picked = x.flatten(-self.dims).gather(-1, chosen.flatten(-self.dims)).view_as(chosen)
        return picked if is_exact else valued(picked, _values_of(call)[0]), chosen


def _columns(windows: Any, x: Tensor) -> Any:
    """Candidate after candidate, and whether it exists; None if all do."""
    whole = windows.slices and not any(windows.padding)
    return ((entries, None if whole else valid) for entries, valid in windows.columns(x))


# All others: the operator itself, applied to ranks.


@dataclass(frozen=True)
class Picked:
    """Which entry of the operands, laid end to end, each output is; -1 where it is none of them."""

    places: tuple[Tensor | None, ...]
    indices: tuple[Tensor | None, ...]


class Ranked(_Selection):
    """The rule of any operator that selects: it is asked to select among ranks instead of values."""

    def __init__(
        self, *operands: str, ignores_nan: bool = False, met: Any = None, when: Any = None, wholly: bool = False
    ):
        self.operands, self.ignores_nan, self._met, self._when = operands, ignores_nan, met, when
        self.wholly = wholly  # it has no forward mode of its own

    def met(self, call: Call, out: Any) -> Tensor | bool:
        if self._when is not None and not self._when(call.arguments):
            return False
        if call.arguments[self.operands[0]].numel() == 0:
            return False
        if self._met is not None:
            return self._met(call, out)
        found = [kink.hits(call.arguments) for kink in call.op.kinks if kink.applies(call.arguments)]
        return torch.stack([each.any() for each in found]).any() if found else False

    def decide(self, call: Call, at: Decide) -> Picked | None:
        if self._when is not None and not self._when(call.arguments):
            return None
        pairs = [(call.arguments[name], tangent(call.arguments[name])) for name in self.operands]
        with values():
            entries = torch.cat([x.reshape(-1) for x, _ in pairs] + self._start(call))
            moved = [torch.zeros_like(x) if ahead is None else ahead for x, ahead in pairs]
            ahead = torch.cat([each.reshape(-1) for each in moved] + [torch.zeros_like(s) for s in self._start(call)])
            ranks, order = ranked(entries, ahead, at.tol, at.flip is not None)
            call.memo["undecided"] = _level(entries, ahead, order)
            if self.ignores_nan:
                ranks = torch.where(entries.isnan(), torch.nan, ranks)
            chosen = _as_list(call.native({**call.arguments, **self._ranks(ranks, pairs, call)}))
            places, indices = [], []
            for out in chosen:
                is_rank = out.is_floating_point()
                known = out.isfinite() if is_rank else None
                place = torch.where(known, order[torch.where(known, out, 0).long()], -1) if known is not None else None
                places.append(place)
                indices.append(None if is_rank else out)
            return Picked(tuple(places), tuple(indices))

    def _start(self, call: Call) -> list[Tensor]:
        """A constant that takes part: where `segment_reduce` starts from."""
        initial = call.arguments.get("initial")
        like = call.arguments[self.operands[0]]
        return [] if initial is None else [torch.full((1,), initial, dtype=like.dtype, device=like.device)]

    def _ranks(self, ranks: Tensor, pairs: Any, call: Call) -> dict[str, Any]:
        sizes, found, start = [x.numel() for x, _ in pairs], {}, 0
        for name, (x, _), size in zip(self.operands, pairs, sizes, strict=True):
            found[name] = ranks[start : start + size].view(x.shape)
            start += size
        if call.arguments.get("initial") is not None:
            found["initial"] = ranks[-1].item()
        return found

    def along(self, call: Call, branch: Picked) -> Any:
        native = _as_list(_values_of(call))
        flat = torch.cat([call.arguments[name].reshape(-1) for name in self.operands] + self._start(call))
        outputs = []
        for value, place, index in zip(native, branch.places, branch.indices, strict=True):
            if place is None:
                outputs.append(value if index is None else index)
            else:
                picked = flat[place.clamp(min=0)]
                outputs.append(valued(torch.where(place < 0, 0, picked), value))
        call.memo["indices"] = [out for out in outputs if not out.is_floating_point()][:1]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _level(entries: Tensor, ahead: Tensor, order: Tensor) -> Tensor:
    """Whether neighbours tie in value and in tangent."""
    return (entries[order].diff() == 0) & (ahead[order].diff() == 0)


def ranked(entries: Tensor, ahead: Tensor, tol: float, last: bool = False) -> tuple[Tensor, Tensor]:
    """The rank of each entry by value, then tangent, as a number, and the entries in that order.

    Those that tie in both are ranked in their order, or the other way round.
    """
    if last:
        ranks, order = ranked(entries.flip(0), ahead.flip(0), tol)
        return ranks.flip(0), len(order) - 1 - order
    if tol == 0:
        by_tangent = ahead.argsort(stable=True)
        order = by_tangent[entries[by_tangent].argsort(stable=True)]
    else:  # neighbours within the tolerance are of one group
        sorted_entries, by_value = entries.sort(stable=True)
        groups = torch.zeros_like(by_value)
        groups[1:] = (sorted_entries.diff() > tol).cumsum(0)
        by_tangent = ahead[by_value].argsort(stable=True)
        order = by_value[by_tangent[groups[by_tangent].argsort(stable=True)]]
    ranks = torch.empty_like(order, dtype=torch.float64)
    ranks[order] = torch.arange(len(order), dtype=torch.float64, device=order.device)
    return ranks, order


def _sorted_repeat(call: Call, out: Any) -> Tensor | bool:
    x, dim = out[0], call.arguments["dim"]
    if x.ndim == 0:
        return False
    return (x.narrow(dim, 1, x.shape[dim] - 1) == x.narrow(dim, 0, x.shape[dim] - 1)).any()


def _selected_twice(call: Call, out: Any) -> Tensor | bool:
    x, dim = call.arguments["self"], call.arguments.get("dim")
    if dim is None:
        return (x == out).sum() > 1
    if x.ndim == 0:
        return False
    found = out[0] if call.arguments["keepdim"] else out[0].unsqueeze(dim)
    return ((x == found).sum(dim) > 1).any()


def _in_top_twice(call: Call, out: Any) -> Tensor | bool:
    x, dim, top = call.arguments["self"], call.arguments["dim"], out[0]
    if x.ndim == 0 or top.shape[dim] == 0:
        return False
    top = top.sort(dim).values
    within = (top.narrow(dim, 1, top.shape[dim] - 1) == top.narrow(dim, 0, top.shape[dim] - 1)).any()
    last = top.amin(dim, True) if call.arguments["largest"] else top.amax(dim, True)
    return within | ((x == last).sum(dim) > (top == last).sum(dim)).any()


def _meets_itself(call: Call, out: Any) -> Tensor:
    """A tie, or what is overwritten happens to equal the result: then torch shares with it, wrongly."""
    found = [kink.hits(call.arguments).any() for kink in call.op.kinks if kink.applies(call.arguments)]
    return torch.stack([*found, (call.arguments["self"] == out).any() & (not call.arguments["include_self"])]).any()


def _reduces(arguments: Any) -> bool:
    return arguments["reduce"] in ("amax", "amin", "max", "min")


SELECTIONS: dict[str, Any] = {
    **{op: Extreme(True) for op in ("amax", "max")},
    **{op: Extreme(False) for op in ("amin", "min")},
    "aminmax": Extreme(False, True),
    "max.dim": Extreme(True, indices=True),
    "min.dim": Extreme(False, indices=True),
    "argmax": Extreme(True, indices=True, values=False),
    "argmin": Extreme(False, indices=True, values=False),
    **{op: Ranked("self", met=_sorted_repeat) for op in ("sort", "sort.stable")},
    "topk": Ranked("self", met=_in_top_twice),
    **{op: Ranked("self", met=_selected_twice) for op in ("kthvalue", "median", "median.dim")},
    **{op: Ranked("self", met=_selected_twice, ignores_nan=True) for op in ("nanmedian", "nanmedian.dim")},
    **{op: Ranked("self") for op in ("cummax", "cummin")},
    "scatter_reduce.two": Ranked("self", "src", when=_reduces, met=_meets_itself),
    "index_reduce": Ranked("self", "source", when=_reduces, met=_meets_itself, wholly=True),
    "segment_reduce": Ranked("data", when=_reduces, wholly=True),
    "max_pool2d_with_indices": Pooled(2, regular, "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "max_pool3d_with_indices": Pooled(3, regular, "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "adaptive_max_pool2d": Pooled(2, adaptive, "output_size"),
    "adaptive_max_pool3d": Pooled(3, adaptive, "output_size"),
    "fractional_max_pool2d": Pooled(2, fractional, "kernel_size", "output_size", "random_samples"),
    "fractional_max_pool3d": Pooled(3, fractional, "kernel_size", "output_size", "random_samples"),
}
