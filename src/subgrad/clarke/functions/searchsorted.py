"""`searchsorted` and `bucketize` jump where a number meets a boundary: comparisons count the boundaries below it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.duals import values
from subgrad.clarke.engine.passes import Look
from subgrad.clarke.functions.cut_derivatives import Handler, name_of, note_another_way, reaches

_NAMES = {"searchsorted": ("sorted_sequence", "input"), "bucketize": ("input", "boundaries")}


def searched(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    note_another_way(current)
    given = {**dict(zip(_NAMES[name_of(func)], args, strict=False)), **kwargs}
    with values():
        found = func(*args, **kwargs)
    boundaries: Any = given.get("sorted_sequence", given.get("boundaries"))
    if given.get("sorter") is not None:
        boundaries = boundaries.gather(-1, given["sorter"])
    number = torch.as_tensor(given.get("input", given.get("self")), device=boundaries.device)
    rows = boundaries if boundaries.ndim == 1 else boundaries.unsqueeze(-2)
    pair = rows, number.unsqueeze(-1)
    is_right = given.get("right", False) or given.get("side") == "right"
    below = _below(*pair, is_right)
    if isinstance(current, Look):
        return found
    with values():
        by_values = _below(*pair, is_right)
    return found + (below.sum(-1) - by_values.sum(-1)).to(found.dtype)


def _below(boundaries: Tensor, number: Tensor, is_right: bool) -> Tensor:
    return boundaries <= number if is_right else boundaries < number


SEARCHES: dict[str, Handler] = dict.fromkeys(_NAMES, searched)
