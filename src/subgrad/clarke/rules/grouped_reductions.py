"""Reductions of groups of rows: bags of embeddings, segments, what is scattered to the same place.

Torch has no forward mode for most of them, and a wrong one for products. Maxima and minima are selections; sums, means
and products are smooth, and in the tangent pass they are made from rows here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.current_pass import running
from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import valued, values
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule
from subgrad.clarke.rules.order_statistics import Ranked, meets_itself
from subgrad.kinks.groups import Groups, bag_numbers, segments
from subgrad.torch_internals.dispatcher import embedding_bag


class Grouped(Rule):
    """The rule of an operator that selects for some arguments, and is smooth for others.

    Attributes:
        selection: the rule where it selects.
        selects: whether it does, for the arguments of a call.
        smooth: where it does not, a tensor with the derivative of its first output.
        derived: whether torch has a forward mode that is right off kinks.
    """

    wholly = True

    def __init__(
        self,
        selection: Ranked,
        selects: Callable[[Any], bool],
        smooth: Callable[[Any, Tensor], Tensor],
        derived: Callable[[Any], bool] = lambda arguments: False,
    ):
        self.selection, self.selects, self.smooth, self.derived = selection, selects, smooth, derived

    def look(self, call: PassCall, tol: float) -> tuple[Any, Tensor | bool]:
        return self.selection.look(call, tol) if self.selects(call.arguments) else (call.run(), False)

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return self.selects(call.arguments) and self.selection.hits(call, tol)

    def decide(self, call: PassCall, at: Decide) -> Any:
        with values():
            if self.derived(call.arguments) and not self.hits(call, at.tol):
                return None
        return self.selection.decide(call, at) if self.selects(call.arguments) else "smooth"

    def along(self, call: PassCall, branch: Any) -> Any:
        if self.selects(call.arguments):
            return self.selection.along(call, branch)
        with values():
            native = call.native(call.arguments)
        outputs = (native,) if isinstance(native, Tensor) else native
        found = valued(self.smooth(call.arguments, outputs[0]), outputs[0])
        return found if isinstance(native, Tensor) else (found, *outputs[1:])


class WithDerivative(Rule):
    """Without a graph torch takes a form of `embedding_bag` that has no derivative, and no other value.

    In the tangent pass that happens where only the weights of the samples are differentiated.
    """

    is_site = False

    def around(self, call: PassCall, current: Any) -> Any:
        with running(current):
            return embedding_bag(**call.arguments)


def _sums(groups: Groups) -> Tensor:
    zeros = groups.rows.new_zeros(groups.count + 1, groups.rows.shape[1])
    return zeros.index_add(0, groups.number, groups.rows)[:-1]


def _sizes(groups: Groups) -> Tensor:
    ones = torch.ones_like(groups.number)
    return ones.new_zeros(groups.count + 1).index_add(0, groups.number, ones)[:-1].unsqueeze(1)


def _products(groups: Groups) -> Tensor:
    """By position in the group: the products so far times the rows that come next, which is right for zeros too."""
    order = groups.number.argsort(stable=True)
    number = groups.number[order]
    starts = torch.searchsorted(number, number)  # where the group of each row begins
    position = torch.arange(len(number), device=number.device) - starts
    found = groups.rows.new_ones(groups.count + 1, groups.rows.shape[1])
    for step in range(int(_sizes(groups).max()) if groups.count else 0):
        here = order[(position == step) & (number < groups.count)]
        ones = torch.ones_like(found)
        found = found * ones.index_copy(0, groups.number[here], groups.rows[here])
    return found[:-1]


def _of_bags(arguments: Any, out: Tensor) -> Tensor:
    weight, indices = arguments["weight"], arguments["indices"]
    number = bag_numbers(indices, arguments["offsets"], len(out), arguments["padding_idx"])
    rows, factors = weight[indices], arguments["per_sample_weights"]
    groups = Groups(rows if factors is None else rows * factors.unsqueeze(1), number, len(out))
    sums = _sums(groups)
    return sums if arguments["mode"] == 0 else sums / _sizes(groups).clamp(min=1)


def _of_segments(arguments: Any, out: Tensor) -> Tensor:
    groups = segments(*(arguments[name] for name in ("data", "lengths", "offsets", "axis")))
    if arguments["reduce"] == "prod":
        start = 1 if arguments["initial"] is None else arguments["initial"]
        return (_products(groups) * start).reshape(out.shape)
    sums = _sums(groups)
    return (sums / _sizes(groups).clamp(min=1) if arguments["reduce"] == "mean" else sums).reshape(out.shape)


def _of_indexed(arguments: Any, out: Tensor) -> Tensor:
    """`index_reduce` along its dimension."""
    own, source, dim = arguments["self"], arguments["source"], arguments["dim"]
    if own.ndim == 0:
        own, source, dim = own.reshape(1), source.reshape(1), 0
    first = own.movedim(dim, 0)
    rows = source.movedim(dim, 0) if source.ndim else source.reshape(1)
    columns = first.shape[1:].numel()
    found = _reduced(
        first.reshape(len(first), columns), rows.reshape(len(rows), columns), arguments["index"].reshape(-1), arguments
    )
    return found.reshape(first.shape).movedim(0, dim).reshape(out.shape)


def _of_scattered(arguments: Any, out: Tensor) -> Tensor:
    """`scatter_reduce`: every entry is a row of its own."""
    own, index, dim = arguments["self"], arguments["index"], arguments["dim"]
    if own.ndim == 0:
        return _reduced(own.reshape(1, 1), arguments["src"].reshape(1, 1), index.reshape(-1), arguments).reshape(())
    source = arguments["src"][tuple(slice(0, size) for size in index.shape)]
    places = torch.arange(own.numel(), device=own.device).reshape(own.shape)
    inside = places[tuple(slice(0, size) if d != dim % own.ndim else slice(None) for d, size in enumerate(index.shape))]
    number = inside.gather(dim, index)
    return _reduced(own.reshape(-1, 1), source.reshape(-1, 1), number.reshape(-1), arguments).reshape(out.shape)


def _reduced(own: Tensor, rows: Tensor, number: Tensor, arguments: Any) -> Tensor:
    """Rows reduced into those of ``own``, which take part or are written over."""
    moved = Groups(rows, number, len(own))
    places = torch.arange(len(own), device=own.device)
    groups = Groups(torch.cat([own, rows]), torch.cat([places, number]), len(own))
    counted = groups if arguments["include_self"] else moved
    if arguments["reduce"] == "prod":
        found = _products(counted)
    else:
        sums = _sums(counted)
        found = sums / _sizes(counted).clamp(min=1) if arguments["reduce"] == "mean" else sums
    return torch.where(_sizes(moved) > 0, found, own)


def _is_largest(arguments: Any) -> bool:
    return arguments["mode"] == 2


def _is_extreme(arguments: Any) -> bool:
    return arguments["reduce"] in ("amax", "amin", "max", "min")


def _is_no_product(arguments: Any) -> bool:
    return arguments["reduce"] != "prod"


GROUPED: dict[str, Any] = {
    "_embedding_bag": Grouped(Ranked("weight"), _is_largest, _of_bags),
    "_embedding_bag_forward_only": WithDerivative(),
    "segment_reduce": Grouped(Ranked("data"), _is_extreme, _of_segments),
    "index_reduce": Grouped(Ranked("self", "source", met=meets_itself), _is_extreme, _of_indexed),
    "scatter_reduce.two": Grouped(Ranked("self", "src", met=meets_itself), _is_extreme, _of_scattered, _is_no_product),
}
