"""Constants that were made inside `inference_mode`: autograd does not take them, but takes what is copied from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from subgrad.clarke.engine.side_effects import target
from subgrad.torch_internals.transforms import DisableTorchFunction


class Copies(TorchFunctionMode):
    """Give torch functions copies of such tensors. What is written into stays what it is, and torch says no."""

    def __init__(self, leaves: Iterable[Tensor]):
        super().__init__()
        self.leaves = frozenset(map(id, leaves))  # what the program is differentiated in is no constant
        self.known: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # there all that is made is such a tensor, and may be written into
            self.known.clear()
            return func(*args, **kwargs)
        with DisableTorchFunction():
            written = target(func, args, kwargs)
            args, kwargs = self._copied(args, written), {name: self._copied(kwargs[name], written) for name in kwargs}
        return func(*args, **kwargs)

    def _copied(self, given: Any, written: Any) -> Any:
        if type(given) in (list, tuple):
            return type(given)(self._copied(each, written) for each in given)
        if not isinstance(given, Tensor) or given is written or not given.is_inference() or id(given) in self.leaves:
            return given
        if id(given) not in self.known:
            self.known[id(given)] = given, given.detach().clone()
        return self.known[id(given)][1]


def with_copies(call: Callable[..., Any], leaves: Iterable[Tensor]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with Copies(leaves):
            return call(*args)

    return run


def is_about_inference(error: Exception) -> bool:
    return "nference tensor" in str(error)
