"""Any other selection: the operator itself, applied to the ranks of its entries by value and tangent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import tangent, valued, values
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.rules.extremes import Selection, as_list, values_of


@dataclass(frozen=True)
class Picked:
    """Which entry of the operands, laid end to end, each output is; -1 where it is none of them."""

    places: tuple[Tensor | None, ...]
    indices: tuple[Tensor | None, ...]


class Ranked(Selection):
    """The rule of any operator that selects: it is asked to select among ranks instead of values."""

    def __init__(self, *operands: str, ignores_nan: bool = False, met: Any = None):
        self.operands, self.ignores_nan, self._met = operands, ignores_nan, met

    def met(self, call: PassCall, out: Any) -> Tensor | bool:
        if call.arguments[self.operands[0]].numel() == 0:
            return False
        if self._met is not None:
            return self._met(call, out)
        found = [kink.hits(call.arguments) for kink in call.op.kinks if kink.applies(call.arguments)]
        return torch.stack([each.any() for each in found]).any() if found else False

    def nearly_met(self, call: PassCall, out: Any, tol: float) -> Tensor | bool:
        """Of what is selected along a dimension, whether neighbours in the order are; else any two entries."""
        x, dim = call.arguments[self.operands[0]], call.arguments.get("dim")
        if len(self.operands) > 1 or self._start(call) or dim is None or x.ndim == 0:
            x, dim = torch.cat([call.arguments[name].reshape(-1) for name in self.operands] + self._start(call)), 0
        return (x.sort(dim).values.diff(dim=dim) <= tol).any()

    def decide(self, call: PassCall, at: Decide) -> Picked:
        pairs = [(call.arguments[name], tangent(call.arguments[name])) for name in self.operands]
        with values():
            entries = torch.cat([x.reshape(-1) for x, _ in pairs] + self._start(call))
            moved = [torch.zeros_like(x) if ahead is None else ahead for x, ahead in pairs]
            ahead = torch.cat([each.reshape(-1) for each in moved] + [torch.zeros_like(s) for s in self._start(call)])
            ranks, order = ranked(entries, ahead, at.tol)
            level = _level(entries, ahead, order)
            call.memo["undecided"] = level
            if self.ignores_nan:
                ranks = torch.where(entries.isnan(), torch.nan, ranks)
            chosen = as_list(call.native({**call.arguments, **self._ranks(ranks, pairs, call)}))
            places, indices = [], []
            for out in chosen:
                is_rank = out.is_floating_point()
                places.append(_at_ranks(out, order) if is_rank else None)
                indices.append(None if is_rank else self._decided(out, places[0], level, at.further(call)))
            return Picked(tuple(places), tuple(indices))

    def _decided(self, index: Tensor, place: Tensor | None, level: Tensor, further: Tensor | None) -> Tensor:
        """Indices of entries that tie in value and tangent are those of a run a little further on."""
        if further is None or place is None:
            return index
        return torch.where(level[place.clamp(min=0)], further, index)

    def _start(self, call: PassCall) -> list[Tensor]:
        """A constant that takes part: where `segment_reduce` starts from."""
        initial = call.arguments.get("initial")
        like = call.arguments[self.operands[0]]
        return [] if initial is None else [torch.full((1,), initial, dtype=like.dtype, device=like.device)]

    def _ranks(self, ranks: Tensor, pairs: Any, call: PassCall) -> dict[str, Any]:
        sizes, found, start = [x.numel() for x, _ in pairs], {}, 0
        for name, (x, _), size in zip(self.operands, pairs, sizes, strict=True):
            found[name] = ranks[start : start + size].view(x.shape)
            start += size
        if call.arguments.get("initial") is not None:
            found["initial"] = ranks[-1].item()
        return found

    def along(self, call: PassCall, branch: Picked) -> Any:
        native = as_list(values_of(call))
        operands = [call.arguments[name].reshape(-1) for name in self.operands]
        nothing = torch.zeros(1, dtype=operands[0].dtype, device=operands[0].device)  # at the end: the place -1
        flat = torch.cat([*operands, *self._start(call), nothing])
        outputs = []
        for value, place, index in zip(native, branch.places, branch.indices, strict=True):
            if place is None:
                outputs.append(value if index is None else index)
            else:
                outputs.append(valued(flat[place], value))
        call.memo["indices"] = [out for out in outputs if not out.is_floating_point()][:1]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _at_ranks(ranks: Tensor, order: Tensor) -> Tensor:
    """The entries of some ranks; -1 for what is no rank: nan, infinity, and the 0 of an empty bag."""
    places = torch.where(ranks.isfinite(), ranks - 1, -1).long()
    return torch.cat([order, order.new_full((1,), -1)])[places]


def _level(entries: Tensor, ahead: Tensor, order: Tensor) -> Tensor:
    """Which entries tie with another in value and in tangent."""
    same = (entries[order].diff() == 0) & (ahead[order].diff() == 0)
    either = torch.nn.functional.pad(same, (1, 0)) | torch.nn.functional.pad(same, (0, 1))
    return torch.zeros_like(either).scatter(0, order, either)


def ranked(entries: Tensor, ahead: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """The rank of each entry by value, then tangent, as a number from 1, and the entries in that order.

    Those that tie in both are ranked in their order.
    """
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
    ranks[order] = torch.arange(1, len(order) + 1, dtype=torch.float64, device=order.device)
    return ranks, order


def _sorted_repeat(call: PassCall, out: Any) -> Tensor | bool:
    x, dim = out[0], call.arguments["dim"]
    if x.ndim == 0:
        return False
    return (x.narrow(dim, 1, x.shape[dim] - 1) == x.narrow(dim, 0, x.shape[dim] - 1)).any()


def _selected_twice(call: PassCall, out: Any) -> Tensor | bool:
    x, dim = call.arguments["self"], call.arguments.get("dim")
    if dim is None:
        return (x == out).sum() > 1
    if x.ndim == 0:
        return False
    found = out[0] if call.arguments["keepdim"] else out[0].unsqueeze(dim)
    return ((x == found).sum(dim) > 1).any()


def _in_top_twice(call: PassCall, out: Any) -> Tensor | bool:
    x, dim, top = call.arguments["self"], call.arguments["dim"], out[0]
    if x.ndim == 0 or top.shape[dim] == 0:
        return False
    top = top.sort(dim).values
    within = (top.narrow(dim, 1, top.shape[dim] - 1) == top.narrow(dim, 0, top.shape[dim] - 1)).any()
    last = top.amin(dim, True) if call.arguments["largest"] else top.amax(dim, True)
    return within | ((x == last).sum(dim) > (top == last).sum(dim)).any()


def meets_itself(call: PassCall, out: Any) -> Tensor:
    """A tie, or what is overwritten happens to equal the result: then torch shares with it, wrongly."""
    found = [kink.hits(call.arguments).any() for kink in call.op.kinks if kink.applies(call.arguments)]
    return torch.stack([*found, (call.arguments["self"] == out).any() & (not call.arguments["include_self"])]).any()


RANKED: dict[str, Any] = {
    **{op: Ranked("self", met=_sorted_repeat) for op in ("sort", "sort.stable")},
    "topk": Ranked("self", met=_in_top_twice),
    **{op: Ranked("self", met=_selected_twice) for op in ("kthvalue", "median", "median.dim")},
    **{op: Ranked("self", met=_selected_twice, ignores_nan=True) for op in ("nanmedian", "nanmedian.dim")},
    **{op: Ranked("self") for op in ("cummax", "cummin")},
}
