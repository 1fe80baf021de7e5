"""What a backward gives gradients to, and how the program calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from subgrad.apply.source_line import user_frame
from subgrad.audit import graphs
from subgrad.audit.backward import Backward


def ends(run: Backward, walked: list[Any]) -> list[Tensor]:
    """What the gradients are of: leaves, or what was asked for."""
    if not run.accumulates:
        return list({id(each): each for each in run.inputs if isinstance(each, Tensor)}.values())
    reached = {id(each) for each in run.inputs}
    return [each for each in graphs.leaves(run.tensors, walked) if not reached or id(each) in reached]


def named(tensors: Sequence[Tensor], known: Mapping[int, str]) -> dict[str, Tensor]:
    """The tensors by name, those of modules in their order first; others as the caller names them, or by shape."""
    frame = user_frame()
    variables = {} if frame is None else {**frame.f_globals, **frame.f_locals}
    names = {**{id(each): name for name, each in variables.items() if isinstance(each, Tensor)}, **known}
    order = {identity: place for place, identity in enumerate(known)}
    found: dict[str, Tensor] = {}
    for each in sorted(tensors, key=lambda each: order.get(id(each), len(order))):
        name = names.get(id(each), f"tensor of {list(each.shape)}")
        while name in found:
            name += "'"
        found[name] = each
    return found
