"""Functions that no rule sees, in words that have rules: `equal`, `isin`, `//`, `unique`, `bincount`, histograms ..."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.duals import valued, values
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.passes import Decide, Look
from subgrad.clarke.functions.cut_derivatives import (
    Handler,
    name_of,
    note_a_cut,
    note_another_way,
    note_reading,
    reaches,
    refuse,
)


def equal(current: Any, func: Any, args: Any, kwargs: Any) -> bool:
    note_reading(current)
    by_values = func(*args, **kwargs)
    if not reaches(args, kwargs):
        return by_values
    one, other = (*args, *kwargs.values())[:2]
    if one is other or one.shape != other.shape:
        return by_values
    note_another_way(current)
    answer = bool((one == other).all())
    return by_values if isinstance(current, Look) else answer


def allclose(current: Any, func: Any, args: Any, kwargs: Any) -> bool:
    note_reading(current)
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    note_another_way(current)
    return bool(torch.isclose(*args, **kwargs).all())


def isin(current: Any, func: Any, args: Any, kwargs: Any) -> Tensor:
    by_values = func(*args, **kwargs)
    if not reaches(args, kwargs):
        return by_values
    given = {**dict(zip(("elements", "test_elements"), args, strict=False)), **kwargs}
    for form in ("element", "test_element"):  # as torch calls them where they are numbers
        given.setdefault(f"{form}s", given.get(form))
    one, other = (torch.as_tensor(given[name]) for name in ("elements", "test_elements"))
    note_another_way(current)
    found = (one.unsqueeze(-1) == other.reshape(-1)).any(-1) ^ given.get("invert", False)
    return by_values if isinstance(current, Look) else found


def floor_divide(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Division that rounds down, which has a rule by its other name."""
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    note_another_way(current)
    name, (one, other) = name_of(func), (*args, *kwargs.values())
    if name == "__rfloordiv__":
        one, other = other if isinstance(other, Tensor) else torch.full_like(one.detach(), other), one
    if name in ("floor_divide_", "__ifloordiv__"):
        return one.div_(other, rounding_mode="floor")
    return torch.div(one, other, rounding_mode="floor")


def bincount(current: Any, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Linear in its weights."""
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    note_another_way(current)
    given = {**dict(zip(("input", "weights", "minlength"), args, strict=False)), **kwargs}
    with values():
        value = func(*args, **kwargs)
    weights, places = given["weights"].to(value.dtype), given.get("input", given.get("self"))
    return valued(value.new_zeros(value.shape).index_add(0, places, weights), value)


def unique(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """In words: entries that differ from the one before, in order; without a dimension."""
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    is_sorted = name_of(func) == "unique"
    names = ("input", *(("sorted",) if is_sorted else ()), "return_inverse", "return_counts", "dim")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("dim") is not None:
        refuse(func, "with a dimension has no derivative. Find which rows are repeated from what is detached.")
    note_another_way(current)
    entries: Any = given.get("input", given.get("self"))
    x = entries.reshape(-1)
    ordered, order = x.sort() if is_sorted else (x, torch.arange(len(x), device=x.device))
    differs = torch.cat((torch.ones_like(x[:1], dtype=torch.bool), ordered[1:] != ordered[:-1]))
    found = [ordered[differs]]
    group = differs.long().cumsum(0) - 1
    if given.get("return_inverse"):
        found.append(torch.empty_like(group).scatter_(0, order, group).reshape(entries.shape))
    if given.get("return_counts"):
        found.append(torch.bincount(group, minlength=len(found[0])))
    return found[0] if len(found) == 1 else tuple(found)


def nextafter(current: Any, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Its first argument, as far as derivatives go: torch's is 0 where both are equal."""
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    note_another_way(current)
    one, other = (*args, *kwargs.values())[:2]
    with values():
        value = torch.nextafter(one, other)
    found = valued(one.to(value.dtype).expand_as(value), value)
    return one.copy_(found) if name_of(func) == "nextafter_" else found


def packed(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Sequences packed step by step, as an index of their rows; torch has no forward mode for it."""
    if not isinstance(current, Decide) or not reaches(args, kwargs):
        return func(*args, **kwargs)
    x, _, batch_first = (*args, *kwargs.values())
    with values():
        _, sizes = func(*args, **kwargs)
    steps = x.transpose(0, 1) if batch_first else x
    rows = [step * steps.shape[1] + torch.arange(size) for step, size in enumerate(sizes.tolist())]
    return steps.reshape(-1, *steps.shape[2:]).index_select(0, torch.cat(rows).to(x.device)), sizes


def histogram(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Counts, which are constant but where an entry is on an edge of a bin."""
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    x = args[0] if args else kwargs.get("input", kwargs.get("self"))
    if reaches(args[1:], {key: each for key, each in kwargs.items() if key not in ("input", "self")}):
        refuse(func, "is differentiated in what it counts by, which has no derivative in torch.")
    note_another_way(current)
    note_a_cut(current, name_of(func))
    with values():
        found = func(*args, **kwargs)
        for entries, edges in _edges(name_of(func), x, args, kwargs, found):
            if bool((entries.reshape(-1, 1) == edges).any()):
                raise Refused(f"{name_of(func)}() at {here()} jumps: an entry is on the edge of a bin.")
    return found


def _edges(name: str, x: Tensor, args: Any, kwargs: Any, found: Any) -> list[tuple[Tensor, Tensor]]:
    """The entries along each axis, and the edges that do not move along with them."""
    if name == "histc":
        given = {**dict(zip(("bins", "min", "max"), args[1:], strict=False)), **kwargs}
        low, high = given.get("min", 0), given.get("max", 0)
        moves = low == high
        low, high = (float(x.min()), float(x.max())) if moves else (low, high)
        edges = torch.linspace(low, high, given.get("bins", 100) + 1, dtype=x.dtype, device=x.device)
        return [(x, edges[1:-1] if moves else edges)]
    bins = kwargs.get("bins", args[1] if len(args) > 1 else None)
    is_given = kwargs.get("range") is not None or _holds_tensors(bins)
    all_edges = found[1] if isinstance(found[1], list | tuple) else [found[1]]
    axes = x.reshape(-1, len(all_edges)).unbind(-1) if len(all_edges) > 1 or name == "histogramdd" else [x]
    return [(axis, edges if is_given else edges[1:-1]) for axis, edges in zip(axes, all_edges, strict=True)]


def _holds_tensors(bins: Any) -> bool:
    return isinstance(bins, Tensor) or (isinstance(bins, list | tuple) and any(isinstance(b, Tensor) for b in bins))


SPELLED: dict[str, Handler] = {
    "equal": equal,
    "allclose": allclose,
    "isin": isin,
    **dict.fromkeys(("floor_divide", "__floordiv__", "__rfloordiv__"), floor_divide),
    **dict.fromkeys(("floor_divide_", "__ifloordiv__"), floor_divide),
    "bincount": bincount,
    **dict.fromkeys(("nextafter", "nextafter_"), nextafter),
    "_pack_padded_sequence": packed,
    **dict.fromkeys(("unique", "unique_consecutive"), unique),
    **dict.fromkeys(("histc", "histogram", "histogramdd"), histogram),
}
