"""Running a program in double precision, whatever precision it was written for.

Quotients of values tell a derivative only as sharply as the values are known. Every floating-point tensor that a torch
function is given is therefore converted to double first, and so is every dtype that is named; constants that the program
holds itself, the parameters of a module say, are converted where they are used. What random numbers a program draws may
depend on the dtype, so that programs that draw some are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16))
# Methods that name a dtype by their own name.
CASTS = frozenset((Tensor.float, Tensor.half, Tensor.bfloat16))
_ATTRIBUTE = "__get__"


class StandIn(TorchFunctionMode):
    """Give torch functions other tensors in the place of some, which a program may hold itself; in double if wide."""

    def __init__(self, others: Mapping[int, Tensor], wide: bool):
        super().__init__()
        self.others, self.wide = others, wide

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.wide and func in CASTS:
            func = Tensor.double
        elif getattr(func, "__name__", "") == _ATTRIBUTE and not (args and id(args[0]) in self.others):
            return func(*args, **(kwargs or {}))
        return func(*self._other(args), **{name: self._other(each) for name, each in (kwargs or {}).items()})

    def _other(self, given: Any) -> Any:
        if isinstance(given, Tensor):
            found = self.others.get(id(given), given)
            return found.double() if self.wide and found.dtype in NARROW else found
        if isinstance(given, torch.dtype):
            return torch.float64 if self.wide and given in NARROW else given
        if type(given) in (list, tuple):
            return type(given)(map(self._other, given))
        return given


@contextmanager
def standing_in(others: Mapping[int, Tensor], wide: bool) -> Iterator[None]:
    """The same, and what is made without a dtype is double as well."""
    before = torch.get_default_dtype()
    if wide:
        torch.set_default_dtype(torch.float64)
    try:
        with StandIn(others, wide) if wide or others else nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)
