"""Complex functions jump across their branch cuts: on a cut they are taken on the side that the program moves to.

There the part that is 0 decides: it is asked for its sign, which has a rule, and moved there by as little as can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.passes import Beside, Look
from subgrad.clarke.functions.cut_derivatives import Handler, is_differentiated, name_of, note_another_way, refuse


def _left_of(point: float) -> Callable[[Tensor], Tensor]:
    return lambda z: (z.imag == 0) & (z.real <= point)


def _outside_on_the_real_axis(z: Tensor) -> Tensor:
    return (z.imag == 0) & (z.real.abs() >= 1)


def _outside_on_the_imaginary_axis(z: Tensor) -> Tensor:
    return (z.real == 0) & (z.imag.abs() >= 1)


_from_0, _from_1 = _left_of(0), _left_of(1)
# Where each function has its cut, with the points at which it ends.
CUTS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[complex, ...]]] = {
    **dict.fromkeys(("angle", "log", "log2", "log10", "sqrt", "rsqrt", "pow", "float_power"), (_from_0, (0,))),
    "log1p": (_left_of(-1), (-1,)),
    "acosh": (_from_1, (1, -1)),
    **dict.fromkeys(("acos", "asin", "atanh"), (_outside_on_the_real_axis, (1, -1))),
    **dict.fromkeys(("atan", "asinh"), (_outside_on_the_imaginary_axis, (1j, -1j))),
}
POWERS = ("pow", "float_power")


def past_the_cut(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    z = args[0] if args else kwargs.get("input", kwargs.get("self"))
    if not isinstance(z, Tensor) or not z.is_complex() or not is_differentiated(z) or isinstance(current, Beside):
        return func(*args, **kwargs)
    name = name_of(func).strip("_").removeprefix("i").replace("arc", "a")
    is_on, ends = CUTS[name]
    value = z.detach().resolve_conj()
    if name in POWERS and _are_whole(*args[1:], *kwargs.values()):
        return func(*args, **kwargs)
    on = is_on(value)
    if not bool(on.any()):
        return func(*args, **kwargs)
    if any(bool((value == end).any()) for end in ends):
        refuse(func, "has no derivative where its branches meet.")
    note_another_way(current)
    part = 0 if is_on is _outside_on_the_imaginary_axis else 1
    below = torch.signbit((z.real, z.imag)[part][on])
    if isinstance(current, Look):
        return func(*args, **kwargs)
    step = torch.finfo(value.real.dtype).tiny
    shift = torch.zeros_like(torch.view_as_real(value))
    shift[..., part][on] = torch.where(below, -1.0, 1.0).to(shift) * step
    shift = torch.view_as_complex(shift)
    if (name_of(func).endswith("_") and not name_of(func).endswith("__")) or name_of(func) == "__ipow__":
        return func(z.add_(shift), *args[1:], **kwargs)
    return func(z + shift, *args[1:], **kwargs)


def _are_whole(*exponents: Any) -> bool:
    given = [each.detach() if isinstance(each, Tensor) else torch.tensor(each) for each in exponents]
    return all(bool((each == each.real.round()).all()) for each in given)


_INVERSES = {name.replace("a", "arc", 1): name for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh")}
BRANCH_CUTS: dict[str, Handler] = {
    **dict.fromkeys((*CUTS, *_INVERSES), past_the_cut),
    **{f"{name}_": past_the_cut for name in (*CUTS, *_INVERSES) if name != "angle"},
    **dict.fromkeys(("__pow__", "__ipow__"), past_the_cut),
}
