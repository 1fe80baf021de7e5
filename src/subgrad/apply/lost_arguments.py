"""Arguments that torch loses on the way to a `TorchFunctionMode`.

Where a mode is active, a function that torch has written in Python hands itself and its arguments to the mode. Some
forget one: ``F.l1_loss(x, y, weight=w)`` reaches every mode without its weight, and a mode that calls it again, as
modes do, computes another loss. A test reads torch's sources and says so where the list below is not all there is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

# By function, up to torch 2.15 at least.
LOST: dict[Callable[..., Any], tuple[str, ...]] = {
    torch.nn.functional.l1_loss: ("weight",),
    Tensor.dim_order: ("ambiguity_check",),
}


def whole(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that reached a mode, with those that torch lost.

    To be called in ``__torch_function__``. What is lost is still in the frame of the function itself, which called
    torch's `handle_torch_function`, which called the mode.
    """
    given = dict(kwargs or {})
    if func not in LOST:
        return args, given
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not handle_torch_function.__code__:
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    if caller is None or caller.f_code is not func.__code__:
        return args, given  # called by a mode, with all that it was given
    return args, {**{name: caller.f_locals[name] for name in LOST[func]}, **given}
