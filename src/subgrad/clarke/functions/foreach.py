"""`torch._foreach_*` and `torch.foreach` run many tensors at once: here each by a call of its own, which has a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.duals import valued, values
from subgrad.clarke.engine.passes import Look
from subgrad.clarke.functions.cut_derivatives import name_of, note_another_way, reaches, refuse

OPTIONS = ("alpha", "value", "ord", "dtype", "non_blocking")  # the same for every tensor


def each_by_itself(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if name_of(func).endswith("_"):
        for each in args[0] if args else kwargs["self"]:
            current.keep(each)
    if not reaches(args, kwargs):
        return func(*args, **kwargs)
    name = name_of(func).removeprefix("_foreach_")
    options = {key: each for key, each in kwargs.items() if key in OPTIONS}
    given = [*args, *(each for key, each in kwargs.items() if key not in OPTIONS)]
    count = next(len(each) for each in given if isinstance(each, list | tuple))
    run = _single(name)
    if run is None:
        refuse(func, "has no rule. Call what it does for each tensor.")
    note_another_way(current)
    if name.startswith("addc") and len(given) > 3 and isinstance(given[3], Tensor):
        given[3] = given[3].tolist()
    found = [run(*(_at(each, place) for each in given), **options) for place in range(count)]
    if name.endswith("_"):
        return given[0]
    if isinstance(current, Look):
        with values():  # some are computed by other kernels, whose values are those of the program
            native = func(*args, **kwargs)
        found = list(map(valued, found, native))
        return type(native)(found)
    return tuple(found)


def _at(argument: Any, place: int) -> Any:
    return argument[place] if isinstance(argument, list | tuple) else argument


def _single(name: str) -> Callable[..., Any] | None:
    if name in SPELLED:
        return SPELLED[name]
    return getattr(Tensor, name, None) if name.endswith("_") else getattr(torch, name, None)


def _largest(x: Any, other: Any) -> Tensor:
    return torch.maximum(x, other) if isinstance(other, Tensor) else torch.clamp_min(x, other)


def _smallest(x: Any, other: Any) -> Tensor:
    return torch.minimum(x, other) if isinstance(other, Tensor) else torch.clamp_max(x, other)


def _add_product(write: str) -> Callable[..., Tensor]:
    def run(x: Tensor, one: Tensor, other: Tensor, value: Any = 1) -> Tensor:
        return getattr(x, write)(one, other, value=value)

    return run


def _norm(x: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


def _power_sum(x: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return (x if dtype is None else x.to(dtype)).abs().pow(ord).sum()


SPELLED: dict[str, Callable[..., Any]] = {
    "maximum": _largest,
    "maximum_": lambda x, other: x.copy_(_largest(x.clone(), other)),
    "minimum": _smallest,
    "minimum_": lambda x, other: x.copy_(_smallest(x.clone(), other)),
    "norm": _norm,
    "powsum": _power_sum,
    **{name: _add_product(name) for name in ("addcmul", "addcmul_", "addcdiv", "addcdiv_")},
}
