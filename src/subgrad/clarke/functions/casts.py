"""Floating-point numbers that are turned into integers or truth values: rounded, or asked whether they are 0.

Both have rules, in which the calls are spelled.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.double_precision import NARROW
from subgrad.clarke.engine.passes import Look
from subgrad.clarke.functions.cut_derivatives import Handler, is_differentiated, note_another_way, note_reading


def cast(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`to`, `type`, `long` and so on: what they return says which type was asked for."""
    out = func(*args, **kwargs)
    x = args[0] if args else kwargs["self"]
    if not isinstance(out, Tensor) or out.is_floating_point() or out.is_complex():
        if isinstance(current, Look) and isinstance(out, Tensor) and out.dtype in NARROW and x.dtype is torch.float64:
            current.narrows = True
        return out
    if not is_differentiated(x):
        return out
    note_another_way(current)
    return rounded(x, out.dtype).to(out)


def asked(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`bool(x)` and `is_nonzero`: Python reads whether a number is 0."""
    note_reading(current)
    x = args[0] if args else kwargs["input"]
    if not is_differentiated(x):
        return func(*args, **kwargs)
    note_another_way(current)
    return func(x != 0)


def written(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`copy_` and assignments into integers or truth values."""
    target, place = args[0], 2 if func.__name__ == "__setitem__" else 1
    value = args[place] if len(args) > place else kwargs.get("other")
    if not isinstance(target, Tensor) or target.is_floating_point() or target.is_complex():
        return func(*args, **kwargs)
    if not isinstance(value, Tensor) or not is_differentiated(value):
        return func(*args, **kwargs)
    note_another_way(current)
    whole = rounded(value, target.dtype).to(target.dtype)
    if len(args) > place:
        return func(*args[:place], whole, *args[place + 1 :], **kwargs)
    return func(*args, **{**kwargs, "other": whole})


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return x != 0
    return torch.trunc(x.real if x.is_complex() else x)


CASTS: dict[str, Handler] = {
    **dict.fromkeys(("to", "_to_copy", "type", "type_as", "bool", "byte", "char", "short", "int", "long"), cast),
    **dict.fromkeys(("float", "half", "bfloat16"), cast),
    **dict.fromkeys(("__bool__", "__nonzero__", "is_nonzero"), asked),
    **dict.fromkeys(("copy_", "__setitem__"), written),
}
